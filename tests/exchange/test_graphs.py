"""ONNX and torch.export: graphs of step and forward give the numbers of the model at other sizes too."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from small_language_models import RECURRENT, SMALL, greedy, shaken

from chainrule.models import MADE, PixelCNN, RecurrentLM, TransformerLM, WaveNet
from chainrule_app.exchange import export_run
from chainrule_app.exchange.graphs import check_graph, graphs_of, rows_of

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
slow = pytest.mark.slow
TINY = {"model_size": 8, "num_layers": 1, "num_heads": 2, "context_length": 5}
MODELS = {
    "lstm": lambda: RecurrentLM(7, "lstm", embedding_size=4, hidden_size=5),
    "gru": lambda: RecurrentLM(7, "gru", hidden_size=5, ngram_order=1),
    "transformer": lambda: TransformerLM(7, **TINY),
    "linear attention": lambda: TransformerLM(7, **TINY, attention="gated-linear"),
    "wavenet": lambda: WaveNet(7, channels=4, blocks=1, layers_per_block=3, skip_channels=4),
}


@torch.no_grad()
@pytest.mark.parametrize("name", [pytest.param(name, marks=[slow] * (name != "gru")) for name in MODELS])
def test_programs_equal_the_model_at_other_sizes(name):
    model = shaken(MODELS[name]())
    found = graphs_of(model)
    step, forward = (graph.program.module() for graph in found.graphs)
    for rows, time in ((1, 1), (2, 3), (5, 17)):
        x = torch.randint(7, (rows, time), generator=torch.Generator().manual_seed(rows))
        wanted = model(x).logits
        log_probs, *last = forward(x, *rows_of(found.state, rows))
        torch.testing.assert_close(log_probs, wanted, atol=1e-5, rtol=1e-5)
        state, before = rows_of(found.state, rows), torch.full((rows,), found.start)
        for t in range(time):
            stepped, *state = step(before, *state)
            torch.testing.assert_close(stepped, wanted[:, t], atol=1e-5, rtol=1e-5)
            before = x[:, t]
        for ours, theirs in zip(state, last, strict=True):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_made_has_forward_alone():
    model = shaken(MADE(6, hidden_sizes=[8]))
    found = graphs_of(model)
    assert [graph.name for graph in found.graphs] == ["forward"]
    assert found.missing
    x = torch.randint(2, (11, 6)).float()
    torch.testing.assert_close(found.graphs[0].program.module()(x)[0], model(x).logits)


def test_the_check_of_a_graph_sees_a_difference():
    model = shaken(MADE(6, hidden_sizes=[8]))
    graph = graphs_of(model).graphs[0]
    program = graph.program.module()
    check_graph(graph, program, {}, model)
    with pytest.raises(ValueError, match="differs from the model"):
        check_graph(graph, lambda x: [program(x)[0] + 0.01], {}, model)


@pytest.mark.parametrize(
    "model",
    [
        PixelCNN((1, 4, 4), levels=2),
        RecurrentLM(400, hidden_size=4, cutoffs=[20, 100]),
        WaveNet(16, channels=4, layers_per_block=2, components=2),
    ],
)
def test_models_without_a_graph_are_named(model):
    with pytest.raises(ValueError, match="this model has no graph"):
        graphs_of(model)


@pytest.mark.parametrize(("name", "options"), [pytest.param("transformer", SMALL, marks=slow), ("lstm", RECURRENT)])
def test_onnxruntime_gives_the_same_numbers_and_symbols(text_run, tmp_path, name, options):
    onnxruntime = pytest.importorskip("onnxruntime")
    run = text_run(name, **options)
    model = run.model()
    export_run(run, "onnx", tmp_path / "onnx")
    described = json.loads((tmp_path / "onnx" / "graphs.json").read_text())
    initial = {leaf: value.numpy() for leaf, value in load_file(tmp_path / "onnx" / "state.safetensors").items()}
    settings = onnxruntime.SessionOptions()
    settings.log_severity_level = 3
    forward, step = (
        onnxruntime.InferenceSession(tmp_path / "onnx" / f"{graph}.onnx", settings) for graph in ("forward", "step")
    )
    x = torch.randint(10, (6, 31))
    state = {leaf: np.repeat(value, 6, 0) for leaf, value in initial.items()}
    log_probs = forward.run(None, {"x": x.numpy()} | state)[0]
    torch.testing.assert_close(torch.from_numpy(log_probs), model(x).logits.detach(), atol=1e-5, rtol=1e-5)
    drawn, state, symbol = [], initial, described["start"]
    outputs = described["graphs"]["step"]["outputs"]
    for _ in range(200):
        found = dict(zip(outputs, step.run(None, {"x": np.array([symbol])} | state), strict=True))
        symbol = int(found["log_probs"].argmax())
        state = {leaf: found[f"next.{leaf}"] for leaf in state}
        drawn.append(symbol)
    assert drawn == greedy(model, 200)


@slow
def test_exported_program_is_read_back(text_run, tmp_path, command):
    run = text_run("gru", **RECURRENT)
    status, out, _ = command("export", run.path, "--to", "torch-export", "--out", tmp_path / "program", "--json")
    assert status == 0
    assert json.loads(out)["files"].keys() >= {"step.pt2", "forward.pt2", "graphs.json", "README.md", "vocabulary.json"}
    forward = torch.export.load(tmp_path / "program" / "forward.pt2").module()
    state = load_file(tmp_path / "program" / "state.safetensors")
    x = torch.randint(10, (2, 12))
    torch.testing.assert_close(forward(x, *rows_of(state, 2))[0], run.model()(x).logits, atol=1e-5, rtol=1e-5)


def test_a_model_that_cannot_be_exported_leaves_nothing(text_run, tmp_path, command):
    run = text_run("lstm", **(RECURRENT | {"num_members": 2}))
    status, _, error = command("export", run.path, "--to", "onnx", "--out", tmp_path / "graphs")
    assert (status, error.count("\n")) == (2, 1)
    assert "this model has no graph: it is a mean of several models" in error
    assert not (tmp_path / "graphs").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".graphs")]
