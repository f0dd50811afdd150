"""Arithmetic that is the same everywhere: written by one process, read by another with other vector instructions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from chainrule.coding import adaptive, decode, encode
from chainrule.coding._portable import functions
from chainrule.coding._portable.arithmetic import ExactSums, PortableArithmetic
from chainrule.heads import Column
from chainrule.models import PixelCNNPP, RecurrentLM, TableMADE, TransformerLM, WaveNet

MODELS = {
    "lstm": lambda: RecurrentLM(50, "lstm", 24, 200, ngram_order=2),
    "transformer": lambda: TransformerLM(50, model_size=64, num_layers=1, num_heads=2),
    "pixels": lambda: PixelCNNPP((3, 2, 3), 256, channels=24, layers=1, components=3),
    "table": lambda: TableMADE(
        [Column("integer", scale=9.0, missing=True), Column("categorical", categories=3)], 64, 1
    ),
    "sound": lambda: WaveNet(levels=64, channels=24, skip_channels=48, layers_per_block=3, blocks=1),
}
DATA = {
    "lstm": lambda: torch.randint(50, (3, 12)),
    "transformer": lambda: torch.randint(50, (1, 12)),
    "pixels": lambda: torch.randint(256, (2, 3, 2, 3)),
    "table": lambda: torch.tensor([[7.0, 2.0], [torch.nan, 0.0], [-40.0, 1.0]]),
    "sound": lambda: torch.randint(64, (1, 20)),
}
TEXT = b"the reader and the writer agree on every bit, whatever adds them up. " * 9


def test_another_processor_reads_every_bit(tmp_path):
    torch.manual_seed(0)
    for name, make in MODELS.items():
        model, x = make(), DATA[name]()
        torch.save({"weights": model.state_dict(), "x": x}, tmp_path / name)
        (tmp_path / f"{name}.coded").write_bytes(encode(model, x, portable=True))
    (tmp_path / "text.coded").write_bytes(adaptive.compress(TEXT))
    others = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        others = {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"}
    threads = str(torch.get_num_threads() + 1)
    settings = os.environ | others | {"OMP_NUM_THREADS": threads, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, __file__, str(tmp_path)], env=settings, check=True)


def read(folder):
    """What the other process does."""
    for name, make in MODELS.items():
        content, model = torch.load(folder / name), make()
        model.load_state_dict(content["weights"])
        found = decode(model, (folder / f"{name}.coded").read_bytes())
        assert torch.equal(found.nan_to_num(-1e9), content["x"].nan_to_num(-1e9)), name
    assert adaptive.decompress((folder / "text.coded").read_bytes(), len(TEXT)) == TEXT


def test_no_order_of_additions_changes_a_sum():
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(5, 3000, dtype=torch.float64, generator=generator) for _ in range(2))
    order, sums = torch.randperm(3000, generator=generator), ExactSums()
    made = sums.product(torch.matmul, a, b.t(), 3000)
    assert torch.equal(made, sums.product(torch.matmul, a[:, order], b[:, order].t(), 3000))
    assert torch.equal(sums.total(a, 1), sums.total(a[:, order], 1))
    assert torch.equal(sums.running(a, 1)[:, -1], sums.running(a[:, order], 1)[:, -1])
    # 20 digits are left to a factor, whose rounding errors are independent of each other.
    assert torch.allclose(made, a @ b.t(), rtol=0, atol=3000**0.5 * 4 * 2.0**-19)
    assert not torch.equal((a @ b.t()), a[:, order] @ b[:, order].t())


@pytest.mark.parametrize("name", ["asinh", "cos", "exp", "expm1", "log", "log1p", "sigmoid", "sin", "softplus", "tanh"])
def test_functions_are_those_of_the_library(name):
    x = torch.cat([torch.linspace(-30, 30, 2001, dtype=torch.float64), torch.logspace(-12, 2, 99, dtype=torch.float64)])
    if name in ("log", "log1p"):
        x = torch.cat([x[x > 0], torch.tensor([0.0, torch.inf, torch.nan, -2.0], dtype=torch.float64)])
    elif name not in ("sin", "cos"):
        x = torch.cat([x, torch.tensor([torch.inf, -torch.inf, torch.nan, 800.0, -800.0], dtype=torch.float64)])
    expected = getattr(torch.nn.functional if name == "softplus" else torch, name)(x)
    # softplus of torch leaves out e^-x from 20 on.
    assert torch.allclose(getattr(functions, name)(x), expected, rtol=2e-9, atol=1e-15, equal_nan=True)


@pytest.mark.parametrize("exponent", [3, -1, 0, 0.5, 2, -2.5])
def test_powers_are_those_of_the_library(exponent):
    x = torch.tensor([-2.0, -0.7, 0.0, 0.3, 3.0], dtype=torch.float64)
    exponents = torch.full_like(x, exponent)
    with torch.no_grad(), PortableArithmetic():
        made, each = x**exponent, x**exponents
    assert torch.allclose(made, x**exponent, rtol=1e-12, equal_nan=True)
    assert torch.allclose(each, x**exponent, rtol=1e-12, equal_nan=True)


def test_softplus_may_be_steeper():
    x = torch.linspace(-9, 9, 50, dtype=torch.float64)
    with torch.no_grad(), PortableArithmetic():
        made = torch.nn.functional.softplus(x, beta=2)
    assert torch.allclose(made, torch.nn.functional.softplus(x, beta=2, threshold=40), rtol=1e-12)


def test_bags_are_sums_in_any_order():
    table, symbols = torch.randn(9, 4, dtype=torch.float64), torch.randint(9, (5, 7))
    with torch.no_grad(), PortableArithmetic():
        forwards, backwards = (
            torch.nn.functional.embedding_bag(x, table, mode="sum") for x in (symbols, symbols.flip(1))
        )
        for options in ({"mode": "mean"}, {"mode": "sum", "padding_idx": 0}):
            with pytest.raises(ValueError, match="no portable form: embedding_bag"):
                torch.nn.functional.embedding_bag(symbols, table, **options)
        with pytest.raises(ValueError, match="no portable form: embedding_bag"):
            torch.nn.functional.embedding_bag(symbols[0], table, torch.tensor([0, 3, 4]), mode="sum")
    assert torch.equal(forwards, backwards)
    torch.testing.assert_close(forwards, table[symbols].sum(1))


def test_an_operation_that_processors_compute_differently_is_refused():
    with torch.no_grad(), PortableArithmetic(), pytest.raises(ValueError, match=r"no portable form.*lgamma"):
        torch.lgamma(torch.ones(3, dtype=torch.float64))


if __name__ == "__main__":
    read(Path(sys.argv[1]))


def test_a_number_is_raised_to_the_powers_of_a_tensor():
    """It was asked for its device, as if it were a tensor."""
    x = torch.tensor([-1.0, 0.0, 0.3, 2.0], dtype=torch.float64)
    with torch.no_grad(), PortableArithmetic():
        made = 10.0**x
    assert torch.allclose(made, 10.0**x, rtol=1e-12)
