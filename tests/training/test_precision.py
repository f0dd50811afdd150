import pytest
import torch

from chainrule.training.precision import autocast, multiply_dtype

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("capabilities", "expected"),
    [({"avx512_bf16": True}, torch.bfloat16), ({"amx_bf16": True}, torch.bfloat16), ({"avx2": True}, torch.float32)],
)
def test_auto_takes_bfloat16_where_the_processor_multiplies_it(
    capabilities: dict[str, bool], expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert multiply_dtype("auto", CPU) is expected
    assert multiply_dtype("float32", CPU) is torch.float32
    assert multiply_dtype("bfloat16", CPU) is torch.bfloat16


def test_a_gpu_without_bfloat16_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    assert multiply_dtype("auto", torch.device("cuda")) is torch.float32
    with pytest.raises(ValueError, match="use precision float32"):
        multiply_dtype("bfloat16", torch.device("cuda"))


def test_products_are_in_the_format_asked_for() -> None:
    a = torch.ones(2, 2)
    for dtype in (torch.float32, torch.bfloat16):
        with autocast(dtype, CPU):
            assert (a @ a).dtype is dtype
