"""Sequences found with the `step` and `State` of any model: the most probable ones, and completions;
and the conditional of any cell of a table."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.decoding._beam_search import beam_search as beam_search
    from chainrule.decoding._beam_search import greedy as greedy
    from chainrule.decoding._completion import complete as complete
    from chainrule.decoding._completion import sample_paths as sample_paths
    from chainrule.decoding._conditional import Conditional as Conditional
    from chainrule.decoding._conditional import conditional as conditional
    from chainrule.decoding._decoded import Decoded as Decoded

__getattr__, __dir__ = attach(__name__)
