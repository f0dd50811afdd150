"""Look inside models: gradients through time, memory, units that follow a property, receptive fields."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.diagnostics._active_units import LatentUse, active_units
    from chainrule.diagnostics._backpropagation import Backpropagation, backpropagate, gradient_profile
    from chainrule.diagnostics._gradient_flow import GradientFlow, gradient_flow
    from chainrule.diagnostics._inspection import Inspection, LayerInspection, inspect_recurrence
    from chainrule.diagnostics._mixer_views import head_figures
    from chainrule.diagnostics._receptive_field import ReceptiveField, receptive_field
    from chainrule.diagnostics._saliency import saliency_maps

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
    "head_figures",
    "inspect_recurrence",
    "receptive_field",
    "saliency_maps",
]

__getattr__, __dir__ = attach(__name__)
