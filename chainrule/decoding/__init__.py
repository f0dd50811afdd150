"""Sequences found with the `step` and `State` of any model: the most probable ones, and completions; knows no model."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.decoding._beam_search import beam_search, greedy
    from chainrule.decoding._completion import Completed, complete
    from chainrule.decoding._decoded import Decoded, rescored
    from chainrule.decoding._sample_paths import sample_paths

__all__ = [
    "Completed",
    "Decoded",
    "beam_search",
    "complete",
    "greedy",
    "rescored",
    "sample_paths",
]

__getattr__, __dir__ = attach(__name__)
