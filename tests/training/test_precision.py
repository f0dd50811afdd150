from collections.abc import Callable

import pytest
import torch
from training_toy import ToyModel, ToyStream, held_out, options

from chainrule.devices import instruction_set, multiply_dtype
from chainrule.training import Computation, train
from chainrule.training._computation import autocast, emulation_note

CPU = torch.device("cpu")


@pytest.fixture
def processor(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make torch and the environment speak of another processor."""

    def pretend(vectors: str, *has: str, limit: str = "") -> None:
        monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: vectors)
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(has, True), raising=False)
        monkeypatch.delenv("DNNL_MAX_CPU_ISA", raising=False)
        monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", limit)

    return pretend


@pytest.mark.parametrize(
    ("vectors", "has", "limit", "name", "expected"),
    [
        ("AVX512", ["avx512_bf16"], "", "AVX-512 bf16", torch.bfloat16),
        ("AVX512", ["avx512_bf16", "amx_bf16"], "all", "AVX-512 AMX", torch.bfloat16),
        ("AVX512", [], "", "AVX-512", torch.float32),
        ("AVX512", ["avx512_bf16"], "avx512_core", "AVX-512", torch.float32),  # hidden from the kernels
        ("AVX2", ["avx512_bf16"], "", "AVX2", torch.float32),  # hidden from torch
        ("AVX2", [], "AVX2", "AVX2", torch.float32),
    ],
)
def test_auto_takes_bfloat16_where_the_processor_may_multiply_it(vectors, has, limit, name, expected, processor):
    processor(vectors, *has, limit=limit)
    assert instruction_set() == name
    assert multiply_dtype("auto", CPU) is expected
    assert multiply_dtype("float32", CPU) is torch.float32
    assert multiply_dtype("bfloat16", CPU) is torch.bfloat16


def test_emulated_bfloat16_is_said_in_one_line(processor: Callable[..., None]) -> None:
    processor("AVX2")
    assert emulation_note(torch.bfloat16, CPU) == (
        "precision bfloat16 is emulated on this processor (AVX2) and slower: float32 is faster here"
    )
    assert emulation_note(torch.float32, CPU) is None
    assert emulation_note(torch.bfloat16, torch.device("cuda")) is None
    processor("AVX512", "avx512_bf16")
    assert emulation_note(torch.bfloat16, CPU) is None


def test_a_run_with_emulated_bfloat16_says_so_and_goes_on(tmp_path, processor, capsys):
    processor("AVX2")
    settings = options(steps=1, precision="bfloat16")
    train(ToyModel(), ToyStream(), held_out, settings, tmp_path, progress=True)
    captured = capsys.readouterr()
    assert (captured.out + captured.err).count("bfloat16 is emulated on this processor (AVX2)") == 1


def test_a_gpu_without_bfloat16_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert multiply_dtype("auto", torch.device("cuda")) is torch.float32
    with pytest.raises(ValueError, match="use precision float32"):
        multiply_dtype("bfloat16", torch.device("cuda"))


def test_a_gpu_of_apple_computes_in_float32_and_says_so() -> None:
    batch = ToyStream().at(0)
    way, reason = Computation.choose(ToyModel(), batch, torch.device("mps"), threads=1, precision="bfloat16")
    assert way.precision == "float32"
    assert reason.endswith("mps, which computes only in float32")
    assert "alone" not in Computation.choose(ToyModel(), batch, torch.device("mps"), threads=1)[1]


def test_products_are_in_the_format_asked_for() -> None:
    a = torch.ones(2, 2)
    for dtype in (torch.float32, torch.bfloat16):
        with autocast(dtype, CPU):
            assert (a @ a).dtype is dtype
