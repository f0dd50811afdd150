"""The methods of a run on engines that spread batches of rows over processes and machines."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule_app.scale.mapper import Mapper as Mapper

__getattr__, __dir__ = attach(__name__)
