"""Look inside models: gradients through time, memory, gates, attention, receptive fields."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule.diagnostics._attention_maps import attention_distance as attention_distance
    from chainrule.diagnostics._attention_maps import saliency_maps as saliency_maps
    from chainrule.diagnostics._backpropagation import Backpropagation as Backpropagation
    from chainrule.diagnostics._backpropagation import backpropagate as backpropagate
    from chainrule.diagnostics._backpropagation import gradient_profile as gradient_profile
    from chainrule.diagnostics._gradient_flow import GradientFlow as GradientFlow
    from chainrule.diagnostics._gradient_flow import gradient_flow as gradient_flow
    from chainrule.diagnostics._hidden_units import LatentUse as LatentUse
    from chainrule.diagnostics._hidden_units import active_units as active_units
    from chainrule.diagnostics._inspection import Inspection as Inspection
    from chainrule.diagnostics._inspection import LayerInspection as LayerInspection
    from chainrule.diagnostics._inspection import inspect_recurrence as inspect_recurrence
    from chainrule.diagnostics._mixer_views import HeadFigures as HeadFigures
    from chainrule.diagnostics._mixer_views import MixerView as MixerView
    from chainrule.diagnostics._mixer_views import mixer_views as mixer_views
    from chainrule.diagnostics._receptive_field import ReceptiveField as ReceptiveField
    from chainrule.diagnostics._receptive_field import receptive_field as receptive_field
    from chainrule.diagnostics._subject import gate_values as gate_values

__getattr__, __dir__ = attach(__name__)
