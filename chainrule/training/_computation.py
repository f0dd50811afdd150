"""How a training step is computed where several ways compute the same: threads, precision, backend."""

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
    """One way to compute a training step.

    Args:
        threads: of the processor.
        precision: number format of matrix products.
        backend: of recurrent layers, see `chainrule.layers`; models without them take no notice.

    >>> str(Computation(2, "float32", "vendor"))
    'float32, vendor kernel, 2 threads'
    """

    threads: int
    precision: Literal["float32", "bfloat16"] = "float32"
    backend: Backend = "auto"

    def __str__(self) -> str:
        backend = {"auto": "", "vendor": "vendor kernel, ", "bptt": "written-out recurrence, "}[self.backend]
        return f"{self.precision}, {backend}{self.threads} thread{'s' if self.threads > 1 else ''}"

    @property
    def dtype(self) -> torch.dtype:
        """The number format of matrix products."""
        return torch.bfloat16 if self.precision == "bfloat16" else torch.float32


@contextmanager
def computing(model: nn.Module, computation: Computation) -> Iterator[None]:
    """Compute with these threads in the block, and with this backend in the recurrent layers of `model`."""
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
    """The layers of a model that have a choice of backend."""
    return [layer for layer in model.modules() if isinstance(layer, Recurrent)]


def _set_threads(threads: int) -> None:
    if threads != torch.get_num_threads():
        torch.set_num_threads(threads)


_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "QUOTA PERIOD" or "max PERIOD": cgroup v2
_OLDER_QUOTA, _OLDER_PERIOD = (Path(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))


def usable_threads() -> int:
    """The threads torch would use, fewer where a container may not use so many cores; OMP_NUM_THREADS overrules both.

    torch itself counts the cores that the process may run on (its affinity), but not the share of their time.
    """
    threads = torch.get_num_threads()
    quota = cpu_quota()
    if quota is None or "OMP_NUM_THREADS" in os.environ:
        return threads
    return min(threads, max(1, math.ceil(quota)))


def most_threads() -> int:
    """The threads beyond which this machine only waits for them: four for each of its cores."""
    return 4 * (os.cpu_count() or 1)


def cpu_quota(
    quota: Path = _QUOTA, older_quota: Path = _OLDER_QUOTA, older_period: Path = _OLDER_PERIOD
) -> float | None:
    """The cores whose whole time a container may use; None where nothing limits it.

    Args:
        quota: file of cgroup v2 that says it.
        older_quota: that of cgroup v1, microseconds of a period.
        older_period: the length of its period, microseconds.
    """
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
    """The vector instructions with which torch computes on this processor, such as "AVX2" or "AVX-512 bf16".

    What the processor has, less what the variables ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA hide.

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
    """Whether bfloat16 is multiplied by instructions of its own; elsewhere it is emulated, slower than float32."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA") or os.environ.get("DNNL_MAX_CPU_ISA") or ""
    if not torch.backends.cpu.get_cpu_capability().startswith("AVX512") or limit.upper() in _BELOW_BFLOAT16:
        return False
    if not hasattr(torch.cpu, "get_capabilities"):
        return False
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def multiply_dtype(precision: str, device: torch.device) -> torch.dtype:
    """The number format of matrix products: `auto` takes bfloat16 where the device multiplies it natively.

    Weights, moments, gradients and log-likelihoods are float32 either way.
    """
    native = _has_bfloat16(device)
    if device.type == "mps":
        return torch.float32
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
