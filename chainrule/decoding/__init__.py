"""The most probable sequences of a model, searched for with its `step` and `State`; knows no model."""

from chainrule.decoding.beam_search import beam_search
from chainrule.decoding.decoded import Decoded
from chainrule.decoding.greedy import greedy

__all__ = ["Decoded", "beam_search", "greedy"]
