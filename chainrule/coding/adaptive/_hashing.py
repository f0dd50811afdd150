"""Hashes of contexts: whole numbers of 32 bits."""

from chainrule.kernels._machine_code import compiled


@compiled
def combine(h: int, value: int) -> int:
    """A hash of another hash and a number below 2^31."""
    h = ((h + value + 1) * 0x2C1B3C6D) & 0xFFFFFFFF
    h ^= h >> 15
    h = (h * 0x297A2D39) & 0xFFFFFFFF
    return h ^ (h >> 14)
