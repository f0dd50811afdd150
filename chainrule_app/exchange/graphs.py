"""`step` and `forward` of a model as graphs that run without its code: `torch.export` programs, and ONNX."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from chainrule import AutoregressiveModel
from chainrule.models import MADE, CalibratedMixture, Ensemble, RecurrentLM, TransformerLM, WaveNet
from chainrule.state import State, flatten, unflatten


def package(name: str) -> Any:
    """Import a package; raise ValueError with the install command if it is absent."""
    try:
        return import_module(name)
    except ImportError:
        raise ValueError(f"this export needs the package {name}, which is not installed: pip install {name}") from None


_TOLERANCE = 1e-4  # of log-probabilities in float32, in the check of what is written
_MOST_STEPS = 1 << 16
_ROWS, _TIME = 3, 9  # of the example
_OTHER = ((1, 1), (4, 13))  # rows and elements that are checked


@dataclass(frozen=True)
class Graph:
    """An exported function."""

    name: str  # step or forward
    program: ExportedProgram  # of `torch.export`
    inputs: list[str]  # the names of its inputs: x, then the leaves of the state
    outputs: list[str]  # the names of its outputs: log_probs, then the leaves of the next state


@dataclass(frozen=True)
class Graphs:
    """All graphs of a model."""

    graphs: list[Graph]  # those that there are
    state: dict[str, Tensor]  # the leaves of the initial state by name, one row each
    start: int | None  # x before the first element; `None` where there is no such symbol
    missing: str = ""  # why there is no graph of step; empty where there is one


class _Step(nn.Module):
    def __init__(self, model: AutoregressiveModel, skeleton: Any, names: list[str]):
        super().__init__()
        self.model, self.skeleton, self.names = model, skeleton, names

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        conditional, after = self.model.step(x, unflatten(dict(zip(self.names, state, strict=True)), self.skeleton))
        leaves = flatten(after)[0]
        return _log_probs(conditional), *(leaves[name] for name in self.names)


class _Forward(nn.Module):
    def __init__(self, step: _Step, start: int):
        super().__init__()
        self.step, self.start = step, start

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        from torch._higher_order_ops.scan import scan

        def body(carried: list[Tensor], x_t: Tensor) -> tuple[list[Tensor], Tensor]:
            log_probs, *after = self.step(*carried)
            # scan takes no view of what it was given, and leaves that lie in memory as before
            after = [leaf.clone(memory_format=torch.contiguous_format) for leaf in after]
            return [x_t.clone(), *after], log_probs.clone()

        start = torch.full((x.shape[0],), self.start, device=x.device)
        (_, *after), log_probs = scan(body, [start, *state], x.t())
        return log_probs.transpose(0, 1), *after


class _Rows(nn.Module):
    """Conditionals of whole rows, of a model that reads a fixed number of columns."""

    def __init__(self, model: AutoregressiveModel):
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        return (self.model(x).logits,)


def _log_probs(conditional: Any) -> Tensor:
    return conditional.logits  # of our Categorical, which normalises them


def graphs_of(model: nn.Module) -> Graphs:
    """Export a model, and check the graphs at sizes other than the example's."""
    model.eval().requires_grad_(False)
    if isinstance(model, MADE) and model.context_size is None:
        x = torch.zeros(_ROWS, model.num_features)
        graph = _exported("forward", _Rows(model), x, {}, model)
        return Graphs([graph], {}, None, "step: each column of a MADE is a product of another size: use forward")
    start = _start(model)
    assert isinstance(model, AutoregressiveModel)
    state, skeleton = _full_state(model)
    step = _Step(model, skeleton, list(state))
    graphs = [
        _exported("step", step, torch.zeros(_ROWS, dtype=torch.long), state, model),
        _exported("forward", _Forward(step, start), torch.zeros(_ROWS, _TIME, dtype=torch.long), state, model),
    ]
    return Graphs(graphs, state, start)


def _start(model: nn.Module) -> int:
    """Return the number of the start symbol."""
    match model:
        case RecurrentLM(adaptive=None) | TransformerLM() | WaveNet(components=None, num_classes=None):
            return model.vocab_size
    if isinstance(model, RecurrentLM):
        reason = "an adaptive softmax has no table of scores"
    elif isinstance(model, CalibratedMixture | Ensemble):
        reason = "it is a mean of several models"
    elif isinstance(model, WaveNet):
        reason = "a WaveNet with labels or a mixture of logistics has no scores of symbols"
    else:
        reason = f"it is of the class {type(model).__name__}, not RecurrentLM, TransformerLM, WaveNet or MADE"
    raise ValueError(f"this model has no graph: {reason}")


@torch.no_grad()
def _full_state(model: AutoregressiveModel) -> tuple[dict[str, Tensor], Any]:
    """Return the leaves of the initial state of one row, those that grow at full size, and its skeleton."""
    begun, skeleton = flatten(model.initial_state(1))
    state: State = model.initial_state(1)
    before, x = None, None
    for _ in range(_MOST_STEPS):
        _, state = model.step(x, state)
        shapes = {name: leaf.shape for name, leaf in flatten(state)[0].items()}
        if shapes == before:
            break
        before, x = shapes, torch.zeros(1, dtype=torch.long)
    assert before is not None
    full = {name: leaf if leaf.shape == before[name] else leaf.new_zeros(before[name]) for name, leaf in begun.items()}
    return full, skeleton


def rows_of(state: dict[str, Tensor], rows: int) -> list[Tensor]:
    """Return the leaves of an initial state, expanded to `rows` rows."""
    return [leaf.expand(rows, *leaf.shape[1:]).contiguous() for leaf in state.values()]


def _exported(name: str, module: nn.Module, x: Tensor, state: dict[str, Tensor], model: AutoregressiveModel) -> Graph:
    batch, leaves = Dim("batch"), rows_of(state, len(x))
    axes: dict[int, Any] = {0: batch, 1: Dim("time")} if name == "forward" and state else {0: batch}
    shapes = {"x": axes, "state": tuple({0: batch} for _ in leaves)} if state else {"x": axes}
    try:
        with torch.no_grad(), _quiet():
            program = torch.export.export(module, (x, *leaves), dynamic_shapes=shapes, strict=True)
    except Exception as error:
        raise ValueError(f"{name}: torch.export cannot trace this model ({str(error).splitlines()[0]:.150})") from error
    graph = Graph(
        name, program, ["x", *state], ["log_probs" if state else "logits", *(f"next.{leaf}" for leaf in state)]
    )
    check_graph(graph, program.module(), state, model)
    return graph


@torch.no_grad()
def check_graph(graph: Graph, call: Any, state: dict[str, Tensor], model: AutoregressiveModel) -> None:
    """Raise ValueError unless a function of tensors gives what the model gives, at other sizes than the example's."""
    generator = torch.Generator().manual_seed(0)
    for rows, time in _OTHER:
        if not state:
            x = torch.randint(2, (rows, model.sequence_length or time), generator=generator).float()
            wanted, output = model(x).logits, call(x)[0]
        else:
            x = torch.randint(2, (rows, time), generator=generator)
            wanted = _log_probs(model(x))
            if graph.name == "forward":
                output = call(x, *rows_of(state, rows))[0]
            else:
                output, leaves, before = [], rows_of(state, rows), torch.full((rows,), _start(model))
                for t in range(time):
                    log_probs, *leaves = call(before, *leaves)
                    output.append(log_probs)
                    before = x[:, t]
                output = torch.stack(output, 1)
        error = float((output - wanted).abs().max())
        if not error < _TOLERANCE:
            raise ValueError(
                f"{graph.name}: the exported graph differs from the model by {error:.2g}: nothing was written"
            )


def write_graphs(model: nn.Module, folder: Path, form: Literal["onnx", "torch-export"]) -> Graphs:
    """Write step and forward of a model into a folder: NAME.onnx or NAME.pt2."""
    if form == "onnx":
        package("onnxscript")
        runtime = package("onnxruntime")
    model_graphs = graphs_of(model)
    for graph in model_graphs.graphs:
        if form == "torch-export":
            torch.export.save(graph.program, folder / f"{graph.name}.pt2")
            continue
        path = folder / f"{graph.name}.onnx"
        try:
            with _quiet():
                onnx_program = torch.onnx.export(
                    graph.program, dynamo=True, verbose=False, input_names=graph.inputs, output_names=graph.outputs
                )
                assert onnx_program is not None
                onnx_program.save(path)
        except Exception as error:
            raise ValueError(
                f"{graph.name}: ONNX cannot express this model ({str(error).splitlines()[0]:.150})"
            ) from error
        options = runtime.SessionOptions()
        options.log_severity_level = 3
        session = runtime.InferenceSession(path, options)

        def call(*tensors: Tensor, session: Any = session, names: list[str] = graph.inputs) -> list[Tensor]:
            arrays = {name: tensor.numpy() for name, tensor in zip(names, tensors, strict=True)}
            return [torch.from_numpy(array) for array in session.run(None, arrays)]

        check_graph(graph, call, model_graphs.state, model)  # type: ignore[arg-type]  # `call` has defaults besides
    return model_graphs


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warnings of deprecations, of optional packages and of errors that it also raises."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch._guards", "torch._dynamo")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
