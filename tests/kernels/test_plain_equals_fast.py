"""Every kernel is the plain twin that `CHAINRULE_KERNELS=off` runs: values, gradients, ragged rows, number types."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import chainrule.kernels as kernels
from chainrule.heads._table_column import Column
from chainrule.layers import (
    GRU,
    LSTM,
    RNN,
    CausalAttention,
    CausalConv1d,
    DeltaNet,
    DiagonalLSTM,
    LinearAttention,
    Map,
    MinGRU,
    MinLSTM,
    Parallel,
    Residual,
    RowLSTM,
    Serial,
    TransformerStack,
)
from chainrule.layers._dilated_stack import DilatedStack
from chainrule.models import (
    MADE,
    GatedPixelCNN,
    ImageTransformer,
    PixelCNN,
    PixelCNNPP,
    PixelRNN,
    RecurrentLM,
    Seq2Seq,
    TableMADE,
    TransformerLM,
    TransformerSeq2Seq,
    WaveNet,
)
from chainrule.state import leaves, map_state

B, T, N = 3, 20, 4
LENGTHS = {"full": None, "ragged": torch.tensor([20, 0, 7])}
# Equal to rounding, in sums of terms of size one; bfloat16 keeps 8 bits.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4, torch.bfloat16: 0.1}

LAYERS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: LSTM(N, N, num_layers=2),
    "lstm, written out": lambda: LSTM(N, N, num_layers=2, backend="bptt"),
    "gru": lambda: GRU(N, N),
    "gru, written out": lambda: GRU(N, N, backend="bptt"),
    "gru, reset before": lambda: GRU(N, N, reset_after=False),
    "rnn": lambda: RNN(N, N),
    "rnn, written out": lambda: RNN(N, N, backend="bptt"),
    "rnn, relu": lambda: RNN(N, N, nonlinearity="relu"),
    "bidirectional lstm": lambda: LSTM(N, N, bidirectional=True, backend="bptt"),
    "min-gru": lambda: MinGRU(N, N),
    "min-lstm": lambda: MinLSTM(N, N),
    "linear attention": lambda: LinearAttention(N, 2, decay="gated", chunk_size=8),
    "retention": lambda: LinearAttention(N, 2, feature_map="identity", decay="fixed", chunk_size=8),
    "delta net": lambda: DeltaNet(N, 2, decay="gated", chunk_size=8),
    "banded attention": lambda: CausalAttention(N, 1, window=3),
    "banded attention, alibi": lambda: CausalAttention(N, 2, window=3, num_kv_heads=1, position="alibi"),
    "attention": lambda: CausalAttention(N, 2, window=T),
    "dilated stack": lambda: DilatedStack(N, [1, 2]),
}


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(autouse=True, params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Everything is made there; no product of float32 is rounded to fewer bits."""
    exact = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    torch.set_default_device(request.param)
    with exact:
        yield request.param
    torch.set_default_device(None)


def switched(monkeypatch: pytest.MonkeyPatch, on: bool, function: Callable[[], list[Tensor]]) -> list[Tensor]:
    monkeypatch.setenv("CHAINRULE_KERNELS", "on" if on else "off")
    assert kernels.enabled() == on
    return function()


def assert_close(fast: list[Tensor], plain: list[Tensor], dtype: torch.dtype) -> None:
    for one, other in zip(fast, plain, strict=True):
        scale = max(1.0, float(other.detach().abs().max())) if other.numel() else 1.0
        torch.testing.assert_close(one.double(), other.double(), rtol=0, atol=TOLERANCE[dtype] * scale)


def derivatives(layer: nn.Module, lengths: Tensor | None, dtype: torch.dtype, order: int) -> list[Tensor]:
    """Outputs and last state, and their derivatives up to an order, weighed at random."""
    number = torch.float32 if dtype == torch.bfloat16 else dtype
    torch.manual_seed(1)
    x = torch.randn(B, T, N, dtype=number, requires_grad=True)
    with torch.autocast(x.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
        y, state = layer(x, None, lengths)
    found = [part for part in (y, *leaves(state)) if part.is_floating_point()]
    inputs = [x, *layer.parameters()]
    loss = sum((part * torch.randn(part.shape, dtype=part.dtype)).sum() for part in found if part.requires_grad)
    for last in range(order, 0, -1):
        gradients = torch.autograd.grad(loss, inputs, create_graph=last > 1, allow_unused=True)
        gradients = [part for part in gradients if part is not None]
        found += gradients
        loss = sum(part.square().sum() for part in gradients)
    return found


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer(name, lengths, dtype, device, monkeypatch):
    torch.manual_seed(0)
    layer = LAYERS[name]().to(torch.float32 if dtype == torch.bfloat16 else dtype)
    # torch's kernel of attention has one derivative, and so has cuDNN's of a recurrent layer.
    once = name == "attention" or (device == "cuda" and isinstance(layer, RNN | GRU | LSTM) and layer.backend == "auto")
    twice = dtype == torch.float64 and not once
    run = partial(derivatives, layer, LENGTHS[lengths], dtype, order=2 if twice else 1)
    assert_close(switched(monkeypatch, True, run), switched(monkeypatch, False, run), dtype)


@pytest.mark.parametrize("layer", [RowLSTM, DiagonalLSTM])
def test_a_layer_over_images(layer, monkeypatch):
    torch.manual_seed(0)
    layer = layer(N).double()
    x = torch.randn(2, N, 3, 4, dtype=torch.float64, requires_grad=True)

    def run() -> list[Tensor]:
        y = layer(x)[0]
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        return [y, first, *torch.autograd.grad(first.square().sum(), [x, *layer.parameters()])]

    assert_close(switched(monkeypatch, True, run), switched(monkeypatch, False, run), torch.float64)


STEPS: dict[str, Callable[[], nn.Module]] = {
    **{name: make for name, make in LAYERS.items() if not name.startswith("bidirectional")},
    "convolution": lambda: CausalConv1d(N, N, 3),
    "combinators": lambda: Serial(Residual(GRU(N, N)), Parallel(Map(nn.Tanh()), MinGRU(N, N))),
    "transformer": lambda: TransformerStack(N, 2, 2, context_length=8),
    "transformer, post-norm": lambda: TransformerStack(N, 2, 2, context_length=8, norm_first=False, norm="rms"),
    "transformer of min-gru": lambda: TransformerStack(N, 2, 2, attention="min-gru", activation="swiglu"),
}


@torch.no_grad()
def steps(layer: nn.Module, rows: int, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(1)
    x = torch.randn(rows, T, N, dtype=dtype)
    step, state, outputs = layer.prepare(), layer.initial_state(rows), []
    for x_t in x.unbind(1):
        y, state = step(x_t, state)
        outputs.append(y)
    return [torch.stack(outputs, 1)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", STEPS)
def test_a_prepared_step(name, rows, dtype, monkeypatch):
    torch.manual_seed(0)
    layer = STEPS[name]().to(dtype).eval()
    run = partial(steps, layer, rows, dtype)
    assert_close(switched(monkeypatch, True, run), switched(monkeypatch, False, run), dtype)


COLUMNS = [
    Column("categorical", categories=3),
    Column("real", centre=1.0, scale=2.0),
    Column("categorical", categories=2),
]
IMAGE = (3, 4, 4)
SYMBOLS = torch.tensor([[0, 3, 1, 2, 4, 4, 0, 1], [4, 1, 1, 0, 2, 3, 0, 2]])
SOURCE = {"tokens": torch.tensor([[1, 2, 3, 0], [2, 2, 0, 0]]), "lengths": torch.tensor([4, 2])}
COLOURS = torch.randint(4, (2, *IMAGE), generator=torch.Generator().manual_seed(2))
WIDE = [
    Column("categorical", categories=40),
    Column("real", missing=True, centre=2.0, scale=3.0),
    Column("integer", atoms=tuple(map(float, range(30)))),
    Column("real", missing=True, scale=5.0),
]
NUMBERS = torch.linspace(-12, 40, 70).double()
WIDE_ROWS = torch.stack(
    [
        torch.arange(70) % 40,
        NUMBERS.masked_fill(NUMBERS > 35, torch.nan),
        torch.arange(70) % 50,
        (-NUMBERS).masked_fill(NUMBERS < -9, torch.nan),
    ],
    1,
)
MODELS: dict[str, tuple[Callable[[], nn.Module], Tensor, object]] = {
    "recurrent": (lambda: RecurrentLM(5, embedding_size=3, hidden_size=4, num_layers=2), SYMBOLS, None),
    "recurrent, n-grams": (lambda: RecurrentLM(5, embedding_size=3, hidden_size=4, ngram_order=3), SYMBOLS, None),
    "transformer": (lambda: TransformerLM(5, model_size=8, num_layers=2, num_heads=2, context_length=5), SYMBOLS, None),
    "wavenet": (lambda: WaveNet(5, channels=4, layers_per_block=2, skip_channels=4), SYMBOLS, None),
    "wavenet, mixture": (lambda: WaveNet(5, channels=4, layers_per_block=2, components=2), SYMBOLS, None),
    "translator": (lambda: Seq2Seq(4, 5, hidden_size=4, embedding_size=4), SYMBOLS, SOURCE),
    "translator of blocks": (
        lambda: TransformerSeq2Seq(4, 5, model_size=8, num_layers=1, num_heads=2),
        SYMBOLS,
        SOURCE,
    ),
    "made": (lambda: MADE(8, [9, 7], order=[3, 1, 0, 2, 7, 6, 4, 5]), (SYMBOLS > 1).double(), None),
    "made of a table": (lambda: TableMADE(COLUMNS, 8, 2), torch.tensor([[2, 0.5, 1], [0, -3.0, 0]]).double(), None),
    "made of a wide table": (lambda: TableMADE(WIDE, 8, 2), WIDE_ROWS, None),
    "made of a table with all atoms": (lambda: TableMADE(WIDE, 8, 2, knots=0), WIDE_ROWS, None),
    "image transformer": (lambda: ImageTransformer(IMAGE, 4, model_size=8, num_layers=1, num_heads=2), COLOURS, None),
    "pixel cnn": (lambda: PixelCNN(IMAGE, 4, channels=12, layers=2, kernel_size=3), COLOURS, None),
    "gated pixel cnn": (lambda: GatedPixelCNN(IMAGE, 4, channels=12, layers=2, kernel_size=3), COLOURS, None),
    "pixel rnn": (lambda: PixelRNN(IMAGE, 4, "row", channels=12, layers=2), COLOURS, None),
    "pixel rnn, diagonal": (lambda: PixelRNN(IMAGE, 4, "diagonal", channels=12, layers=2), COLOURS, None),
    "pixel cnn++": (lambda: PixelCNNPP(IMAGE, 4, 8, 1, 2), COLOURS, None),
}


@torch.no_grad()
def stepped(model: nn.Module, x: Tensor, context: object) -> list[Tensor]:
    step, state, x_prev, terms = model.prepare().step, model.initial_state(len(x), context), None, []
    for element in model.to_sequence(x).unbind(1):
        conditional, state = step(x_prev, state)
        terms.append(conditional.log_prob(element))
        x_prev = element
    return [torch.stack(terms, 1)]


@pytest.mark.parametrize("name", MODELS)
def test_a_model(name, monkeypatch):
    torch.manual_seed(0)
    make, x, context = MODELS[name]
    model, (x, context) = (
        make().double().eval(),
        map_state(lambda leaf: leaf.to(torch.get_default_device()), (x, context)),
    )
    run = partial(stepped, model, x, context)
    fast, plain = switched(monkeypatch, True, run), switched(monkeypatch, False, run)
    assert_close(fast, plain, torch.float64)
    assert_close([part.sum(1) for part in fast], [model.log_prob(x, context)], torch.float64)


@pytest.mark.parametrize(
    ("kernel", "broken", "case"),
    [
        ("_recurrent.tanh", lambda a, out: out.copy_(a), "gru, written out"),
        (
            "_recurrent.weight_gradient",
            lambda d, first, flat, sizes: d.new_zeros(d.shape[1], flat.shape[1]),
            "rnn, written out",
        ),
        ("_scan._by_pairs", lambda a, b: b, "min-gru"),
        ("_scan.chunk_decays", lambda log_decay: (log_decay[..., None] * 0, log_decay), "linear attention"),
        ("_cached_steps._in_window", lambda far, window: far < window, "banded attention"),
    ],
)
def test_a_broken_kernel_is_seen(kernel, broken, case, monkeypatch):
    torch.manual_seed(0)
    layer = LAYERS[case]().double()
    run = partial(derivatives, layer, None, torch.float64, order=1)
    plain = switched(monkeypatch, False, run)
    monkeypatch.setattr(f"chainrule.kernels.{kernel}", broken)
    with pytest.raises(AssertionError, match="not close"):
        assert_close(switched(monkeypatch, True, run), plain, torch.float64)
