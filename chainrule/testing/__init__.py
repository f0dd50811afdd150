"""Checks that a model keeps the contract, for the library's models and for yours."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.testing._contract import check as check
    from chainrule.testing._contract import check_model as check_model
    from chainrule.testing._contract_check import Report as Report
    from chainrule.testing._contract_check import Result as Result
    from chainrule.testing._dependence import check_causality as check_causality
    from chainrule.testing._dependence import check_full_context as check_full_context
    from chainrule.testing._draws import check_samples_follow_log_prob as check_samples_follow_log_prob
    from chainrule.testing._invariance import check_batch_independence as check_batch_independence
    from chainrule.testing._invariance import check_padding_invariance as check_padding_invariance
    from chainrule.testing._invariance import check_reproducible as check_reproducible
    from chainrule.testing._invariance import check_save_load as check_save_load
    from chainrule.testing._latent_checks import check_exact as check_exact
    from chainrule.testing._probability import check_total_probability as check_total_probability
    from chainrule.testing._stepping import check_chunk_invariance as check_chunk_invariance
    from chainrule.testing._stepping import check_codec as check_codec
    from chainrule.testing._stepping import check_step_equals_forward as check_step_equals_forward

__getattr__, __dir__ = attach(__name__)
