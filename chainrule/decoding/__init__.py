"""Sequences found with the `step` and `State` of any model: the most probable ones, and completions; knows no model."""

from chainrule.decoding.beam_search import beam_search
from chainrule.decoding.completion import Completed, complete
from chainrule.decoding.decoded import Decoded, rescored
from chainrule.decoding.greedy import greedy
from chainrule.decoding.sample_paths import sample_paths

__all__ = [
    "Completed",
    "Decoded",
    "beam_search",
    "complete",
    "greedy",
    "rescored",
    "sample_paths",
]
