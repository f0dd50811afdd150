"""Fast versions of what `layers` and `models` say plainly; private.

Each kernel has its plain twin where the equation is written, is chosen only where it computes the same function, and is
held to it by `tests/kernels`. `CHAINRULE_KERNELS=off` in the environment makes every plain twin run.
"""

import os

__all__: list[str] = []  # nothing for users


def enabled() -> bool:
    """Return whether kernels may run; read wherever one is chosen."""
    return os.environ.get("CHAINRULE_KERNELS") != "off"
