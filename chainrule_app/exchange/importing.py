"""Runs made of models that were trained elsewhere; nothing in a checkpoint is executed."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from chainrule.data import BPEVocabulary
from chainrule.files import read_json
from chainrule.layers._pointwise import EPSILON
from chainrule.printing import printable
from chainrule.training import save_weights
from chainrule_app.exchange.symbols import Symbols, read_symbols
from chainrule_app.readers.text import check_file, fingerprint
from chainrule_app.tasks.config import Duration, Fingerprint, RunConfig
from chainrule_app.tasks.model import memory
from chainrule_app.tasks.run_directory import VOCABULARY, WEIGHTS, TemporaryFolder, refuse_existing
from chainrule_app.tasks.text.options import MODELS, TextData, TextTraining
from chainrule_app.tasks.text.task import TextCounts, TextFacts, TextTask

if TYPE_CHECKING:
    from chainrule_app.run import Run

_INSIDE = ("model", "state_dict", "model_state_dict", "net")  # where training scripts put the weights
_COMPILED = "_orig_mod."  # torch.compile's
_WRAPPED = "module."  # of DataParallel


class Checkpoint:
    """The tensors of a file by name, in float32 or float64, and what else it holds."""

    def __init__(self, path: Path):
        self.path = check_file(path)
        if self.path.stat().st_size > memory() // 4:
            raise ValueError(
                f"{path}: {self.path.stat().st_size >> 20:,} MiB, more than a quarter of this machine's memory: use a "
                "machine with more"
            )
        content = self._content()
        self.about: Mapping[str, Any] = content
        for name in _INSIDE:
            if isinstance(content.get(name), dict):
                content = content[name]
                break
        self._tensors: dict[str, Tensor] = {}
        self._taken = set[str]()
        for name, value in content.items():
            if isinstance(name, str) and isinstance(value, Tensor) and value.is_floating_point():
                plain = name.removeprefix(_COMPILED).removeprefix(_WRAPPED).removeprefix(_COMPILED)
                self._tensors[plain] = value.float() if value.itemsize < 4 else value
        if not self._tensors:
            raise ValueError(f"{path}: expected a dict of tensors, got none: save model.state_dict()")

    def _content(self) -> dict[str, Any]:
        if self.path.suffix == ".safetensors":
            try:
                return dict(load_file(self.path))
            except (SafetensorError, ValueError, KeyError) as error:
                raise ValueError(f"{self.path}: damaged, or no safetensors file ({error})") from None
        try:
            content = torch.load(self.path, map_location="cpu", weights_only=True)
        except UnpicklingError:
            raise ValueError(
                f"{self.path}: damaged, or a pickle with other Python objects than tensors, which are never loaded: "
                "save model.state_dict() with torch.save, or safetensors"
            ) from None
        except (
            RuntimeError,
            EOFError,
            KeyError,
            ValueError,
            TypeError,
            AttributeError,
            IndexError,
            OverflowError,
        ) as error:
            raise ValueError(f"{self.path}: damaged, or no file of torch.save ({error!s:.120})") from None
        if not isinstance(content, dict):
            raise ValueError(f"{self.path}: expected a dict of tensors, got {type(content).__name__}")
        return content

    def names(self) -> list[str]:
        """Return the names of the tensors, in order."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor; ValueError where it is absent."""
        if name not in self._tensors:
            raise ValueError(f"{self.path}: expected a tensor {name}, got none: is it a checkpoint of another model?")
        return tuple(self._tensors[name].shape)

    def has(self, name: str) -> bool:
        """Return whether there is a tensor."""
        return name in self._tensors

    def take(self, name: str, *shape: int) -> Tensor:
        """Return a tensor of a shape; ValueError where it is absent or has another."""
        actual_shape = self.shape(name)
        if actual_shape != shape:
            raise ValueError(f"{self.path}: {name}: expected shape {shape}, got {actual_shape}")
        self._taken.add(name)
        return self._tensors[name].detach()

    def refuse_others(self, expected: str, *buffers: str) -> None:
        """Raise ValueError where a tensor was not taken, unless its name ends like one of the buffers."""
        others = [name for name in self._tensors if name not in self._taken and not name.endswith(buffers)]
        if others:
            raise ValueError(
                f"{self.path}: {others[0]} {self.shape(others[0])}: expected only {expected}: a model with other parts "
                "is not imported"
            )


_ACTIVATIONS = {"gelu_new": "gelu-tanh", "gelu_pytorch_tanh": "gelu-tanh", "gelu": "gelu", "relu": "relu"}
_GATES = {4: "lstm", 3: "gru", 1: "rnn"}
_OF_RNN = ("tanh", "relu")


@dataclass(frozen=True)
class Foreign:
    """A model from elsewhere: the name that the task text has for its kind, options and weights."""

    model: str
    options: dict[str, Any]
    weights: dict[str, Tensor]
    assumed: tuple[str, ...] = ()  # what the file does not say, and what was taken for it


def nanogpt(file: Checkpoint, symbols: Symbols, *, activation: str | None) -> Foreign:
    """Read a checkpoint of nanoGPT: `model_args` and the state dict."""
    arguments = file.about.get("model_args")
    heads = arguments.get("n_head") if isinstance(arguments, dict) else None
    if not isinstance(arguments, dict) or type(heads) is not int:
        raise ValueError(f"{file.path}: expected a checkpoint of nanoGPT with model_args and n_head in it, got none")
    if activation not in (None, *_ACTIVATIONS.values()):
        raise ValueError(f"activation: expected gelu, gelu-tanh or relu, got {activation!r:.40}")
    foreign = _gpt2(file, symbols, heads, activation or "gelu", tied=False)
    sizes = {"n_layer": "num_layers", "n_embd": "model_size", "block_size": "context_length"}
    _check_sizes(file.path, "model_args", arguments, {name: foreign.options[option] for name, option in sizes.items()})
    assumed = _by_default("activation", activation, "gelu", "nanoGPT's since 2023, gelu-tanh before; not in the file")
    return replace(foreign, assumed=(*assumed, *foreign.assumed))


def _check_sizes(path: Path, where: str, stated: Mapping[str, Any], actual: dict[str, int]) -> None:
    """Raise ValueError where sizes that a file states are not those of its weights."""
    for name, size in actual.items():
        if type(stated.get(name)) is int and stated[name] != size:
            raise ValueError(
                f"{path}: {where} has {name} {stated[name]}, but the weights have {size}: damaged or mixed up"
            )


def gpt2(file: Checkpoint, symbols: Symbols, config: Mapping[str, Any]) -> Foreign:
    """GPT-2 in `transformers`, described by the content of its config.json."""
    if config.get("model_type") != "gpt2":
        raise ValueError(
            f"config.json: expected model_type gpt2, got {config.get('model_type')!r:.40}: no other is imported"
        )
    activation = config.get("activation_function", "gelu_new")
    epsilon, heads = config.get("layer_norm_epsilon", 1e-5), config.get("n_head", 12)
    untied = config.get("tie_word_embeddings", True) is False
    wrong = [
        f"activation_function {activation!r:.40}" if activation not in _ACTIVATIONS else "",
        f"layer_norm_epsilon {epsilon!r:.40}" if epsilon != EPSILON else "",
        f"n_head {heads!r:.40}" if type(heads) is not int else "",
        "scale_attn_weights false" if config.get("scale_attn_weights", True) is not True else "",
        "scale_attn_by_inverse_layer_idx" if config.get("scale_attn_by_inverse_layer_idx") else "",
        "add_cross_attention" if config.get("add_cross_attention") else "",
        "pruned_heads" if config.get("pruned_heads") else "",
        "no lm_head.weight, though tie_word_embeddings is false" if untied and not file.has("lm_head.weight") else "",
    ]
    if reason := next(filter(None, wrong), ""):
        raise ValueError(f"config.json: {reason}: chainrule has no such model")
    foreign = _gpt2(file, symbols, heads, _ACTIVATIONS[activation], tied=not untied)
    sizes = {"n_layer": "num_layers", "n_embd": "model_size", "n_positions": "context_length"}
    _check_sizes(file.path, "config.json", config, {name: foreign.options[option] for name, option in sizes.items()})
    return foreign


def _gpt2(file: Checkpoint, symbols: Symbols, heads: int, activation: str, *, tied: bool) -> Foreign:
    prefix = "transformer." if file.has("transformer.wte.weight") else ""
    vocabulary, size = _matrix(file, f"{prefix}wte.weight")
    positions, _ = _matrix(file, f"{prefix}wpe.weight")
    symbols.check(vocabulary, file.path)
    if heads < 1 or size % heads:
        raise ValueError(f"{file.path}: expected a number of heads that divides {size} features, got {heads}")
    layers = 0
    while file.has(f"{prefix}h.{layers}.ln_1.weight"):
        layers += 1
    first = f"{prefix}h.0"
    turned = file.shape(f"{first}.attn.c_attn.weight") == (size, 3 * size)  # Conv1D: inputs first
    hidden = _matrix(file, f"{first}.mlp.c_fc.weight")[1 if turned else 0]
    bias = file.has(f"{first}.attn.c_attn.bias")

    def product(name: str, outputs: int, inputs: int) -> Iterator[tuple[str, Tensor]]:
        weight = file.take(f"{name}.weight", *((inputs, outputs) if turned else (outputs, inputs)))
        yield "weight", weight.t() if turned else weight
        if bias:
            yield "bias", file.take(f"{name}.bias", outputs)

    def norm(name: str, ours: str) -> dict[str, Tensor]:
        weight = file.take(f"{name}.weight", size)
        shift = file.take(f"{name}.bias", size) if file.has(f"{name}.bias") else weight.new_zeros(size)
        return {f"{ours}.weight": weight, f"{ours}.bias": shift}

    table = file.take(f"{prefix}wte.weight", vocabulary, size)
    head = "lm_head.weight" if file.has("lm_head.weight") else f"{prefix}wte.weight"
    if tied and not torch.equal(file.take(head, vocabulary, size), table):
        raise ValueError(
            f"{file.path}: {head} is not the embedding, though tie_word_embeddings is true in config.json: set it to "
            "false if the weights differ on purpose"
        )
    output, shift = symbols.outputs(file.take(head, vocabulary, size), None)
    weights = {
        "embedding.weight": symbols.inputs(table) / size**0.5,
        "stack.positions.weight": file.take(f"{prefix}wpe.weight", positions, size),
        "weight_ho": output,
        "bias_ho": shift,
        **norm(f"{prefix}ln_f", "stack.norm"),
    }
    for layer in range(layers):
        there, here = f"{prefix}h.{layer}", f"stack.blocks.layers.{layer}"
        weights |= norm(f"{there}.ln_1", f"{here}.norm1") | norm(f"{there}.ln_2", f"{here}.norm2")
        weights |= {f"{here}.mixer.in_proj_{part}": x for part, x in product(f"{there}.attn.c_attn", 3 * size, size)}
        weights |= {f"{here}.mixer.out_proj.{part}": x for part, x in product(f"{there}.attn.c_proj", size, size)}
        weights |= {f"{here}.feed_forward.linear1.{part}": x for part, x in product(f"{there}.mlp.c_fc", hidden, size)}
        weights |= {
            f"{here}.feed_forward.linear2.{part}": x for part, x in product(f"{there}.mlp.c_proj", size, hidden)
        }
    file.refuse_others("the parts of GPT-2", ".attn.bias", ".attn.masked_bias")  # masks of older versions
    options = {
        "model_size": size,
        "num_layers": layers,
        "num_heads": heads,
        "position": "learned",
        "context_length": positions,
        "feed_forward_size": hidden,
        "activation": activation,
        "bias": bias,
        "ngram_order": 1,
    }
    return Foreign("transformer", options, weights)


def recurrent(file: Checkpoint, symbols: Symbols, *, embedding: str | None, activation: str | None) -> Foreign:
    """Read a state dict of nn.LSTM, nn.GRU or nn.RNN between an embedding, or one-hot vectors, and a linear layer."""
    matches = [name for name in file.names() if name.endswith("weight_hh_l0")]
    if len(matches) != 1:
        raise ValueError(f"{file.path}: expected one nn.LSTM, nn.GRU or nn.RNN (weight_hh_l0), got {len(matches)}")
    prefix = matches[0].removesuffix("weight_hh_l0")
    own = [name for name in file.names() if name.startswith(prefix) and "_l" in name.removeprefix(prefix)]
    if other := [name for name in own if name.endswith("_reverse") or "weight_hr" in name]:
        raise ValueError(
            f"{file.path}: {other[0]}: bidirectional layers and projections are no model of what comes next"
        )
    rows, hidden = _matrix(file, matches[0])
    if not hidden or rows % hidden or rows // hidden not in _GATES:
        raise ValueError(f"{file.path}: {matches[0]}: expected 4, 3 or 1 times {hidden} rows, got {rows}")
    kind = _GATES[rows // hidden]
    if activation is not None and (kind != "rnn" or activation not in _OF_RNN):
        expected = " or ".join(_OF_RNN) if kind == "rnn" else f"none, because an {kind} has its own"
        raise ValueError(f"activation: expected {expected}, got {activation!r:.40}")
    layers = sum(name.startswith(f"{prefix}weight_hh_l") for name in own)
    inputs = _matrix(file, f"{prefix}weight_ih_l0")[1]
    ends = _ends(file, [name for name in file.names() if name not in own], inputs, hidden, embedding)
    vocabulary = file.shape(ends.output)[0]
    symbols.check(vocabulary, file.path)
    head = file.take(ends.output, vocabulary, hidden)
    table = (
        file.take(ends.embedding, vocabulary, inputs)
        if ends.embedding
        else head.new_zeros(vocabulary, vocabulary).fill_diagonal_(1)
    )
    weight, shift = symbols.outputs(head, file.take(ends.bias, vocabulary) if ends.bias else None)
    weights = {"embedding.weight": symbols.inputs(table), "weight_ho": weight, "bias_ho": shift}
    for layer in range(layers):
        shapes = {"weight_ih": (rows, inputs if layer == 0 else hidden), "weight_hh": (rows, hidden)}
        for name, shape in (shapes | {"bias_ih": (rows,), "bias_hh": (rows,)}).items():
            there = f"{prefix}{name}_l{layer}"
            absent = name.startswith("bias") and not file.has(there)
            weights[f"recurrent.{name}_l{layer}"] = head.new_zeros(rows) if absent else file.take(there, *shape)
    file.refuse_others("an embedding, recurrent layers and one linear layer")
    options: dict[str, Any] = {
        "hidden_size": hidden,
        "num_layers": layers,
        "embedding_size": inputs,
        "ngram_order": 1,
        "ngram_dropout": 0.0,
        "dropout": 0.0,
        "embedding_dropout": 0.0,
        "tie_weights": False,
        "adaptive_softmax": False,
        "num_members": 1,
    }
    assumed = [ends.reason]
    if kind == "rnn":
        options["nonlinearity"] = activation or _OF_RNN[0]
        assumed += _by_default("activation", activation, _OF_RNN[0], "nn.RNN's default; a state dict does not say it")
    return Foreign(kind, options, weights, tuple(assumed))


@dataclass(frozen=True)
class _Ends:
    """Names of the tensors on both sides of the recurrent layers, empty for one that is absent; how they were told."""

    embedding: str
    output: str
    bias: str
    reason: str


_ONE_HOT = "one-hot"
_OF_EMBEDDINGS = {"emb", "embed", "embedding", "embeddings", "encoder", "encode", "enc", "wte", "lookup", "char", "in"}
_OF_OUTPUTS = {
    "decoder", "decode", "dec", "head", "out", "output", "outputs", "fc", "linear", "lin", "proj", "projection",
    "logits", "classifier", "dense", "softmax", "generator", "ho",
}  # fmt: skip


def _ends(file: Checkpoint, names: list[str], inputs: int, hidden: int, embedding: str | None) -> _Ends:
    """Tell the embedding from the linear layer: by the option, shapes, a bias or names, never by their order."""
    matrices = [name for name in names if len(file.shape(name)) == 2]
    shown = ", ".join(f"{name} {file.shape(name)}" for name in matrices) or "no matrix"
    if not matrices or len(matrices) > 2:
        raise ValueError(
            f"{file.path}: expected an embedding (V, {inputs}) and a linear layer (V, {hidden}) next to the recurrent "
            f"layers, got {shown}"
        )
    if embedding is not None and embedding not in (*matrices, _ONE_HOT):
        raise ValueError(f"embedding: expected {', '.join(matrices)} or {_ONE_HOT}, got {embedding!r:.80}")
    tables = [name for name in matrices if file.shape(name)[1] == inputs and embedding in (None, name)]
    outputs = [name for name in matrices if file.shape(name)[1] == hidden]
    vectors = [name for name in names if len(file.shape(name)) == 1]
    biases = {name: name.removesuffix("weight") + "bias" for name in matrices}
    if len(matrices) == 1:
        return _single(file, matrices[0], vectors, inputs, hidden, embedding)
    choices = [(table, output) for table in tables for output in outputs if table != output]
    if not choices or embedding == _ONE_HOT:
        raise ValueError(
            f"{file.path}: expected an embedding (V, {inputs}) and a linear layer (V, {hidden}), got {shown}"
        )
    if len(choices) == 1:
        how = "as the option says" if embedding is not None else "by their shapes"
    elif torch.equal(
        file.take(matrices[0], *file.shape(matrices[0])), file.take(matrices[1], *file.shape(matrices[1]))
    ):
        choices, how = sorted(choices, key=lambda choice: biases[choice[0]] in vectors), "which are equal"
    elif len(plain := [choice for choice in choices if biases[choice[0]] not in vectors]) == 1:
        choices, how = plain, "because only a linear layer has a bias"
    elif len(named := [choice for choice in choices if _likeness(choice[0]) > _likeness(choice[1])]) == 1:
        choices, how = named, "by their names"
    else:
        raise ValueError(
            f"{file.path}: {' and '.join(matrices)} have one shape, and neither a bias nor a name tells which is the "
            f"embedding: name it with embedding={matrices[0]!r} or {matrices[1]!r}"
        )
    table, output = choices[0]
    bias = biases[output] if biases[output] in vectors else ""
    return _Ends(table, output, bias, f"{table} is the embedding, {output} the linear layer, {how}")


def _single(file: Checkpoint, name: str, vectors: list[str], inputs: int, hidden: int, embedding: str | None) -> _Ends:
    """Return the ends of a model with one matrix: of the linear layer after one-hot vectors, or of both sides."""
    size, width = file.shape(name)
    one_hot = inputs == size and embedding in (None, _ONE_HOT)
    tied = inputs == width and embedding in (None, name)
    if width != hidden or not (one_hot or tied):
        raise ValueError(
            f"{file.path}: expected an embedding (V, {inputs}) and a linear layer (V, {hidden}), or one-hot vectors "
            f"({size}) and a linear layer, got {name} {file.shape(name)}"
        )
    if one_hot and tied:
        raise ValueError(
            f"{file.path}: {name} may belong to a linear layer after one-hot vectors, or be the embedding too: "
            f"choose with embedding={_ONE_HOT!r} or {name!r}"
        )
    bias = next((vector for vector in vectors if vector.endswith("bias") and file.shape(vector) == (size,)), "")
    reason = f"inputs are one-hot vectors, {name} is the linear layer"
    return (
        _Ends("", name, bias, reason)
        if one_hot
        else _Ends(name, name, bias, f"{name} is both the embedding and the linear layer")
    )


def _likeness(name: str) -> int:
    """Return 1 for a usual name of an embedding, -1 for one of a linear layer, 0 for any other."""
    words = set(re.split(r"[._\d]+", name.lower()))
    return bool(words & _OF_EMBEDDINGS) - bool(words & _OF_OUTPUTS)


def _by_default(option: str, value: str | None, default: str, why: str) -> list[str]:
    return [] if value is not None else [f"{option} {default} ({why})"]


def _matrix(file: Checkpoint, name: str) -> tuple[int, int]:
    shape = file.shape(name)
    if len(shape) != 2:
        raise ValueError(f"{file.path}: {name}: expected a matrix, got shape {shape}")
    return shape[0], shape[1]


Kind = Literal["nanogpt", "torch-rnn", "huggingface"]
_OPTIONS = {"nanogpt": ("activation",), "torch-rnn": ("embedding", "activation"), "huggingface": ()}


def import_model(
    kind: Kind,
    path: str | Path,
    out: str | Path | None = None,
    *,
    vocabulary: str | Path | None = None,
    start: str | None = None,
    embedding: str | None = None,
    activation: str | None = None,
    overwrite: bool = False,
) -> "Run":
    """Make a run of a language model that another program trained; its conditionals equal that model's.

    The first symbol is predicted after a start symbol, which takes the embedding of one that the model knows: the
    conditionals of x equal the source model's after reading (start, x_1, ..., x_{T-1}). What the file does not say and
    is assumed is printed on standard error.

    Args:
        kind: "nanogpt", a checkpoint of nanoGPT; "torch-rnn", the state dict of an embedding, an nn.LSTM, nn.GRU or
            nn.RNN, and a linear layer; "huggingface", a folder of GPT-2 with config.json, model.safetensors and
            tokenizer.json.
        path: the checkpoint, or the folder.
        out: the run directory; a temporary one, which `Run.save` moves, by default.
        vocabulary: the symbols: a tokenizer.json, JSON with the symbols in order or with a number each, or a text with
            every character once, in order. A folder has its own.
        start: the symbol that the first one follows; by default `<|endoftext|>` if there is one, else the line feed.
        embedding: of "torch-rnn", the name of the embedding's tensor, or "one-hot" for a model without one; by default
            told by shapes, biases and names.
        activation: of "torch-rnn" with an nn.RNN, "tanh" (default) or "relu"; of "nanogpt", "gelu" (default),
            "gelu-tanh" (before 2023) or "relu".
        overwrite: whether to replace a run in `out`.

    Raises:
        FileNotFoundError: a file is missing.
        FileExistsError: there is something in `out` already.
        ValueError: a file is damaged, holds code, describes an unsupported model, or leaves open which tensor is which.
    """
    from chainrule_app.run import Run

    path = Path(path)
    if out is not None:
        refuse_existing(Path(out), overwrite=overwrite)
    options = {"embedding": embedding, "activation": activation}
    source, foreign, symbols = _read(kind, path, None if vocabulary is None else Path(vocabulary), start, options)
    first = () if start is not None else (f"the first symbol follows {symbols.start_name!r} (start)",)
    for line in (*foreign.assumed, *first):
        print(printable(f"assumed: {line}"), file=sys.stderr)
    folder = TemporaryFolder()
    run = Run(_written(folder.path, foreign, symbols, source), folder)
    if out is not None:
        run.save(out, overwrite=overwrite)
    return run


def _read(
    kind: Kind, path: Path, vocabulary: Path | None, start: str | None, options: dict[str, str | None]
) -> tuple[Path, Foreign, Symbols]:
    """Read the file of weights, the model, and its vocabulary; `options` say what the file does not."""
    if kind not in _OPTIONS:
        raise ValueError(f"kind: expected {', '.join(_OPTIONS)}, got {kind!r:.40}")
    if extra := [name for name, value in options.items() if value is not None and name not in _OPTIONS[kind]]:
        raise ValueError(f"{extra[0]}: {kind} leaves nothing to tell: leave it out")
    options = {name: options[name] for name in _OPTIONS[kind]}
    if kind == "huggingface":
        if not path.is_dir():
            raise ValueError(f"{path}: expected a folder with config.json, model.safetensors and tokenizer.json")
        source, config = path / "model.safetensors", path / "config.json"
        for file in (config, source):
            if not file.is_file():
                raise FileNotFoundError(f"{file}: no such file: expected a folder of one file of weights")
        symbols = read_symbols(path / "tokenizer.json" if vocabulary is None else vocabulary, start=start)
        if vocabulary is None:
            _check_settings(path, symbols)
        return source, gpt2(Checkpoint(source), symbols, read_json(config)), symbols
    symbols = read_symbols(vocabulary, start=start)
    reader: Callable[..., Foreign] = nanogpt if kind == "nanogpt" else recurrent
    return path, reader(Checkpoint(path), symbols, **options), symbols


def _check_settings(folder: Path, symbols: Symbols) -> None:
    """Raise ValueError where other files of a folder change what tokenizer.json says, as transformers reads them."""
    settings, added = ({} if not file.is_file() else read_json(file) for file in map(folder.joinpath, _SETTINGS))
    if settings.get("add_prefix_space") is True:
        raise ValueError(
            f"{folder / _SETTINGS[0]}: add_prefix_space puts a space before every text, which loses text: set it to "
            "false if the model was trained without"
        )
    entries = settings.get("added_tokens_decoder")
    entries = entries.values() if isinstance(entries, dict) else ()
    contents = [*added, *(entry.get("content") for entry in entries if isinstance(entry, dict))]
    vocabulary = symbols.vocabulary
    known = vocabulary.pieces if isinstance(vocabulary, BPEVocabulary) else ()
    if missing := [content for content in contents if content not in known]:
        raise ValueError(
            f"{folder}: {missing[0]!r:.80} is an added token, but not in tokenizer.json: write the folder again with "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder)"
        )


_SETTINGS = ("tokenizer_config.json", "added_tokens.json")


def _written(folder: Path, foreign: Foreign, symbols: Symbols, source: Path) -> TextTask:
    """Write a run directory as training leaves it, without text and checkpoint."""
    none = TextCounts(elements=0, lines=0, unknown=0, characters=0, bytes=0)
    config = RunConfig(
        sources={"source": None, "validation": None, "tokenizer": None},
        data=TextData(level=symbols.vocabulary.level, validation_fraction=0.01),  # type: ignore[arg-type]  # a str to mypy
        model=foreign.model,
        options=MODELS[foreign.model].options(**foreign.options),
        duration=Duration(),
        training=TextTraining(
            batch_size=32, optimiser="adamw", learning_rate=1e-3, weight_decay=0.01, kneser_ney_order=0
        ),
        facts=TextFacts(source=Fingerprint(**fingerprint(source)), validation=None, train=none, valid=none),
    )
    task = TextTask.create(folder, config)
    symbols.vocabulary.save(folder / VOCABULARY)
    model = task.new_model(0)
    model.load_state_dict(foreign.weights)
    save_weights(folder / WEIGHTS, model, {})
    return task
