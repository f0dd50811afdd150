"""In what precision matrices are multiplied."""

from contextlib import AbstractContextManager

import torch

from chainrule.training.instruction_set import instruction_set, multiplies_bfloat16


def multiply_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The number format of matrix products: `auto` takes bfloat16 where the device multiplies it natively.

    Weights, moments, gradients and log-likelihoods are float32 either way.

    Raises:
        ValueError: bfloat16 was asked of a GPU that has none.
    """
    native = _has_bfloat16(device)
    if precision == "bfloat16" and device.type == "cuda" and not native:
        raise ValueError(f"precision: expected a GPU that multiplies bfloat16, got {device}: use precision float32")
    return torch.bfloat16 if precision == "bfloat16" or (precision == "auto" and native) else torch.float32


def autocast(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """A context in which matrix products run in `dtype`."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)


def emulation_note(dtype: torch.dtype, device: torch.device) -> str | None:
    """A line that says that products in `dtype` are slower on this processor than in float32; None where they are not.

    >>> emulation_note(torch.float32, torch.device("cpu"))
    """
    if dtype != torch.bfloat16 or device.type != "cpu" or multiplies_bfloat16():
        return None
    return f"precision bfloat16 is emulated on this processor ({instruction_set()}) and slower: float32 is faster here"


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and multiplies_bfloat16()
