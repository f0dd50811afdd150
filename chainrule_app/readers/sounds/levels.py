"""Levels of amplitudes by the name of their law."""

from chainrule.data import LinearLevels, MuLawLevels
from chainrule.option_error import OptionError

SoundLevels = MuLawLevels | LinearLevels

LAWS = ("mu", "linear")


def make_levels(law: str, levels: int) -> SoundLevels:
    """Return the levels by the name of their law, mu or linear; raises ValueError as they do, and for another name."""
    if law not in LAWS:
        raise OptionError("law", f"expected one of {', '.join(LAWS)}, got {law!r}")
    return MuLawLevels(levels) if law == "mu" else LinearLevels(levels)
