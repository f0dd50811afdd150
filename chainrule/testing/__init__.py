"""Tests that a model keeps the contract: run on every model here, and on yours."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.testing.batch_independence import check_batch_independence
    from chainrule.testing.causality import check_causality
    from chainrule.testing.chunk_invariance import check_chunk_invariance
    from chainrule.testing.codec import check_codec
    from chainrule.testing.conditions import check_conditions
    from chainrule.testing.contract import check_model
    from chainrule.testing.full_context import check_full_context
    from chainrule.testing.gradients import check_gradients_reach_parameters
    from chainrule.testing.labels import check_log_prob_is_that_of_forward
    from chainrule.testing.latent_bounds import check_bounds, check_exact, check_kl_divergence, check_posterior
    from chainrule.testing.latent_decoder import check_decoder
    from chainrule.testing.module_check import check
    from chainrule.testing.padding_invariance import check_padding_invariance
    from chainrule.testing.report import Report, Result
    from chainrule.testing.reproducible import check_reproducible
    from chainrule.testing.sampling import check_samples_follow_log_prob
    from chainrule.testing.saving import check_save_load
    from chainrule.testing.step_equals_forward import check_step_equals_forward
    from chainrule.testing.total_probability import check_total_probability

__all__ = [
    "Report",
    "Result",
    "check",
    "check_batch_independence",
    "check_bounds",
    "check_causality",
    "check_chunk_invariance",
    "check_codec",
    "check_conditions",
    "check_decoder",
    "check_exact",
    "check_full_context",
    "check_gradients_reach_parameters",
    "check_kl_divergence",
    "check_log_prob_is_that_of_forward",
    "check_model",
    "check_padding_invariance",
    "check_posterior",
    "check_reproducible",
    "check_samples_follow_log_prob",
    "check_save_load",
    "check_step_equals_forward",
    "check_total_probability",
]

__getattr__, __dir__ = attach(__name__)
