"""Arithmetic whose results are the same bits on every processor; only a code that asks for it imports this."""

from chainrule.coding._portable.arithmetic import PortableArithmetic, portable_copy

__all__ = ["PortableArithmetic", "portable_copy"]
