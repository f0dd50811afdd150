"""Threads, precision and backend of training steps, and the capabilities of the processor."""

import math
import os
import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from chainrule.layers._recurrent import Backend, Recurrent


@dataclass(frozen=True)
class Computation:
    """Settings of a training step's computation.

    >>> str(Computation(2, "float32", "vendor"))
    'float32, vendor kernel, 2 threads'
    """

    threads: int  # number of CPU threads
    precision: Literal["float32", "bfloat16"] = "float32"  # number format of matrix products
    backend: Backend = "auto"  # backend of recurrent layers, see `chainrule.layers`; ignored by other models

    def __str__(self) -> str:
        backend = {"auto": "", "vendor": "vendor kernel, ", "bptt": "written-out recurrence, "}[self.backend]
        return f"{self.precision}, {backend}{self.threads} thread{'s' if self.threads > 1 else ''}"

    @property
    def dtype(self) -> torch.dtype:
        """Number format of matrix products."""
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32


@contextmanager
def computing(model: nn.Module, computation: Computation) -> Iterator[None]:
    """Set the threads, and the backend of the recurrent layers of `model`, in the block."""
    threads, layers = torch.get_num_threads(), recurrent_layers(model)
    backends = [layer.backend for layer in layers]
    try:
        _set_threads(computation.threads)
        for layer in layers:
            layer.backend = computation.backend
        yield
    finally:
        _set_threads(threads)
        for layer, backend in zip(layers, backends, strict=True):
            layer.backend = backend


def recurrent_layers(model: nn.Module) -> list[Recurrent]:
    """Return the layers of a model with a choice of backend."""
    return [layer for layer in model.modules() if isinstance(layer, Recurrent)]


def _set_threads(threads: int) -> None:
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)


_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "QUOTA PERIOD" or "max PERIOD": cgroup v2
_OLDER_QUOTA, _OLDER_PERIOD = (Path(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))


def usable_threads() -> int:
    """Return torch's number of threads, limited by the container's CPU quota unless OMP_NUM_THREADS is set."""
    threads = torch.get_num_threads()  # respects the CPU affinity, but not the quota
    quota = cpu_quota()
    if quota is None or "OMP_NUM_THREADS" in os.environ:
        return threads
    return min(threads, max(1, math.ceil(quota)))


def most_threads() -> int:
    """Return the largest useful number of threads: four per core."""
    return 4 * (os.cpu_count() or 1)


def cpu_quota(
    quota: Path = _QUOTA, older_quota: Path = _OLDER_QUOTA, older_period: Path = _OLDER_PERIOD
) -> float | None:
    """Return the CPU quota of the container in cores, from cgroup v2 or v1 files; None without a limit."""
    try:
        allowed, period = (
            quota.read_text().split() if quota.exists() else (older_quota.read_text(), older_period.read_text())
        )
        return float(allowed) / float(period) if float(allowed) > 0 and float(period) > 0 else None
    except (OSError, ValueError):  # "max", no such files, or not Linux
        return None


_NAMES = {"DEFAULT": "no vector instructions", "NO AVX": "no vector instructions", "AVX512": "AVX-512"}
# Values of oneDNN's variable that stop below bfloat16; others, and unknown ones, allow it.
_BELOW_BFLOAT16 = ("SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2", "AVX512_CORE", "AVX512_CORE_VNNI")


def instruction_set() -> str:
    """Name the vector instructions that torch uses on this processor, such as "AVX2" or "AVX-512 bf16".

    The variables ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA may disable instructions of the processor.

    >>> instruction_set() != ""
    True
    """
    capability = torch.backends.cpu.get_cpu_capability()
    if capability == "DEFAULT" and platform.machine() in ("arm64", "aarch64"):
        return "NEON"
    name = _NAMES.get(capability, capability)
    if multiplies_bfloat16():
        return f"{name} AMX" if torch.cpu.get_capabilities().get("amx_bf16") else f"{name} bf16"
    return name


def multiplies_bfloat16() -> bool:
    """Return true if the processor has instructions for bfloat16; emulation is slower than float32."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512") or limit.upper() in _BELOW_BFLOAT16:
        return False
    if not hasattr(torch.cpu, "get_capabilities"):
        return False
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def multiply_dtype(precision: str, device: torch.device) -> torch.dtype:
    """Choose the number format of matrix products: `auto` is bfloat16 if the device multiplies it natively."""
    native = _has_bfloat16(device)
    if device.type == "mps":
        return torch.float32
    if precision == "bfloat16" and device.type == "cuda" and not native:
        raise ValueError(f"precision: expected a GPU that multiplies bfloat16, got {device}: use precision float32")
    return torch.bfloat16 if precision == "bfloat16" or (precision == "auto" and native) else torch.float32


def autocast(dtype: torch.dtype, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which matrix products run in `dtype`; weights and log-likelihoods stay float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=dtype == torch.bfloat16)


def emulation_note(dtype: torch.dtype, device: torch.device) -> str | None:
    """Return a warning if products in `dtype` are emulated on this processor, else None.

    >>> emulation_note(torch.float32, torch.device("cpu"))
    """
    if dtype != torch.bfloat16 or device.type != "cpu" or multiplies_bfloat16():
        return None
    return f"precision bfloat16 is emulated on this processor ({instruction_set()}) and slower: float32 is faster here"


def _has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and multiplies_bfloat16()
