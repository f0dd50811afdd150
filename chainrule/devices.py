"""Devices, threads and number formats: what this machine can compute with, and this process's share of a training."""

import math
import os
import platform
from pathlib import Path

import torch

from chainrule.option_error import OptionError


def process_shard() -> tuple[int, int]:
    """Return (rank, world): this process trains on rows rank::world of every batch; (0, 1) outside torchrun."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def choose_device(device: str, *, apple: bool = False) -> torch.device:
    """Resolve auto (cuda, else mps if `apple`), cpu, cuda, cuda:N or mps; under torchrun a GPU for each process."""
    has_mps = torch.backends.mps.is_available()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "mps" if apple and has_mps else "cpu"
    name, _, index = device.partition(":")
    if name not in ("cpu", "cuda", "mps") or (index and not (name == "cuda" and index.isdigit())):
        raise OptionError("device", f"expected auto, cpu, cuda, cuda:N or mps, got {device!r}")
    if name == "mps" and not has_mps:
        raise OptionError("device", "torch finds no Apple GPU on this machine", "use device cpu")
    if name == "mps" and process_shard()[1] > 1:
        raise OptionError("device", "several processes train on cpu or cuda, got mps", "use device cpu")
    if name in ("cpu", "mps"):
        return torch.device(name)
    number = int(index or os.environ.get("LOCAL_RANK", "0"))
    if number >= (gpus := torch.cuda.device_count()):
        if not gpus:
            raise OptionError("device", f"no CUDA device is available, got {device}", "use device cpu")
        raise OptionError("device", f"expected one of {gpus} GPUs, got {device} (number {number})", "use device cpu")
    return torch.device("cuda", number)


_QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "QUOTA PERIOD" or "max PERIOD": cgroup v2
_OLDER_QUOTA, _OLDER_PERIOD = (Path(f"/sys/fs/cgroup/cpu/cpu.cfs_{name}_us") for name in ("quota", "period"))


def usable_threads() -> int:
    """Return torch's number of threads, limited by the container's CPU quota unless OMP_NUM_THREADS is set."""
    threads = torch.get_num_threads()  # respects the CPU affinity, but not the quota
    quota = cpu_quota()
    if quota is None or "OMP_NUM_THREADS" in os.environ:
        return threads
    return min(threads, max(1, math.ceil(quota)))


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
    """Name the vector instructions that torch uses here, such as "AVX2", within limits of environment variables."""
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
    native = device.type == "cpu" and multiplies_bfloat16()
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "mps":
        return torch.float32
    if precision == "bfloat16" and device.type == "cuda" and not native:
        raise OptionError(
            "precision", f"expected a GPU that multiplies bfloat16, got {device}", "use precision float32"
        )
    return torch.bfloat16 if precision == "bfloat16" or (precision == "auto" and native) else torch.float32
