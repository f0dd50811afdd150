"""Lossless codes: an exact likelihood p(x), written as a file of −log₂ p(x) bits, with any model; knows no model."""

from chainrule.coding.range_coder import DamagedError
from chainrule.coding.streams import decode, encode

__all__ = ["DamagedError", "decode", "encode"]
