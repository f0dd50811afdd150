"""Lossless codes: an exact likelihood p(x), written as a file of −log₂ p(x) bits, with any model; knows no model."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.coding._batches import CodedBatch as CodedBatch
    from chainrule.coding._batches import RowLayout as RowLayout
    from chainrule.coding._range_coder import DamagedError as DamagedError
    from chainrule.coding._reproducible import machine as machine
    from chainrule.coding._reproducible import model_digest as model_digest
    from chainrule.coding._reproducible import reproducible as reproducible
    from chainrule.coding._streams import decode as decode
    from chainrule.coding._streams import encode as encode

__getattr__, __dir__ = attach(__name__)
