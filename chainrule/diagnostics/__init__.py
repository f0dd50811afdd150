"""Look inside models: gradients through time, memory, units that follow a property, receptive fields."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.diagnostics.active_units import LatentUse, active_units
    from chainrule.diagnostics.backpropagation import Backpropagation, backpropagate
    from chainrule.diagnostics.gradient_flow import GradientFlow, gradient_flow
    from chainrule.diagnostics.gradient_profile import gradient_profile
    from chainrule.diagnostics.inspection import Inspection, LayerInspection, inspect_recurrence
    from chainrule.diagnostics.receptive_field import ReceptiveField, receptive_field

__all__ = [
    "Backpropagation",
    "GradientFlow",
    "Inspection",
    "LatentUse",
    "LayerInspection",
    "ReceptiveField",
    "active_units",
    "backpropagate",
    "gradient_flow",
    "gradient_profile",
    "inspect_recurrence",
    "receptive_field",
]

__getattr__, __dir__ = attach(__name__)
