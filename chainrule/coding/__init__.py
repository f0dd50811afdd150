"""Lossless compression with the exact likelihood of any model of discrete elements; knows no model."""

from chainrule.coding.range_coder import DamagedError
from chainrule.coding.streams import decode, encode

__all__ = ["DamagedError", "decode", "encode"]
