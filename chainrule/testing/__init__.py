"""Checks that a model keeps the contract, for the library's models and for yours."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.testing._codec import check_codec
    from chainrule.testing._contract import check, check_model
    from chainrule.testing._contract_check import Report, Result
    from chainrule.testing._dependence import check_causality, check_full_context
    from chainrule.testing._invariance import (
        check_batch_independence,
        check_padding_invariance,
        check_reproducible,
        check_save_load,
    )
    from chainrule.testing._latent_checks import check_exact
    from chainrule.testing._probability import check_samples_follow_log_prob, check_total_probability
    from chainrule.testing._stepping import check_chunk_invariance, check_step_equals_forward

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
