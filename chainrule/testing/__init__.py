"""Tests that a model keeps the contract: run on every model here, and on yours."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.testing._batch_independence import check_batch_independence
    from chainrule.testing._causality import check_causality
    from chainrule.testing._chunk_invariance import check_chunk_invariance
    from chainrule.testing._codec import check_codec
    from chainrule.testing._contract import check_model
    from chainrule.testing._full_context import check_full_context
    from chainrule.testing._latent_bounds import check_exact
    from chainrule.testing._module_check import check
    from chainrule.testing._padding_invariance import check_padding_invariance
    from chainrule.testing._report import Report, Result
    from chainrule.testing._reproducible import check_reproducible
    from chainrule.testing._sampling import check_samples_follow_log_prob
    from chainrule.testing._saving import check_save_load
    from chainrule.testing._step_equals_forward import check_step_equals_forward
    from chainrule.testing._total_probability import check_total_probability

__all__ = [
    "Report",
    "Result",
    "check",
    "check_batch_independence",
    "check_causality",
    "check_chunk_invariance",
    "check_codec",
    "check_exact",
    "check_full_context",
    "check_model",
    "check_padding_invariance",
    "check_reproducible",
    "check_samples_follow_log_prob",
    "check_save_load",
    "check_step_equals_forward",
    "check_total_probability",
]

__getattr__, __dir__ = attach(__name__)
