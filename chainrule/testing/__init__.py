"""Checks that a model keeps the contract, for the library's models and for yours."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.testing._contract import check as check
    from chainrule.testing._contract import check_model as check_model
    from chainrule.testing._contract import check_rule as check_rule
    from chainrule.testing._contract_check import Report as Report
    from chainrule.testing._contract_check import Result as Result
    from chainrule.testing._latent_checks import check_exact as check_exact

__getattr__, __dir__ = attach(__name__)
