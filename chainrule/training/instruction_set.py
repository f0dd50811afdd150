"""What the processor may be asked for: its vector instructions, and bfloat16 among them."""

import os
import platform

import torch

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
