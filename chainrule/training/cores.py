"""How many processor cores this process may use."""

import math
import os
from pathlib import Path

import torch

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
