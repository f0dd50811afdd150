"""In what precision matrices are multiplied."""

from contextlib import AbstractContextManager

import torch


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


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu" or not hasattr(torch.cpu, "get_capabilities"):
        return False
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
