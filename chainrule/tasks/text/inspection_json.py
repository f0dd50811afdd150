"""An inspection as JSON."""

import math
from dataclasses import asdict
from typing import Any

from torch import Tensor

from chainrule.data.vocabulary import Vocabulary
from chainrule.diagnostics import Inspection
from chainrule.diagnostics.clipping import Clipping
from chainrule.diagnostics.report import ReadText, mean_surprise


def inspection_figures(
    inspection: Inspection, read: ReadText, x: Tensor, vocabulary: Vocabulary, trained: Clipping | None
) -> dict[str, Any]:
    """All figures, the traces of units apart; what is not finite becomes null. x: (B, T) symbols."""
    flow, surprise, has = inspection.flow, inspection.surprise, inspection.has_property
    assert surprise is not None
    rows = [
        {
            "symbols": x[row, :length].tolist(),
            "text": list(map(vocabulary.token, x[row, :length].tolist())),
            "bits": surprise[row, :length].tolist(),
            "has_property": None if has is None else has[row, :length].tolist(),
        }
        for row, length in enumerate(flow.lengths.tolist())
    ]
    figures = {
        "text": read.name,
        "elements": int(flow.lengths.sum()),
        "unknown": read.unknown,
        "bits_per_element": mean_surprise(inspection),
        "property": _property(read),
        "nonfinite": [{"row": row, "step": step} for row, step in flow.nonfinite],
        "layers": [_layer(inspection, index) for index in range(len(inspection.layers))],
        "clipping": None if trained is None else _clipping(trained),
        "rows": rows,
    }
    return {name: _finite(value) for name, value in figures.items()}


def _property(read: ReadText) -> dict[str, Any] | None:
    if read.chosen is None:
        return None
    return {"name": read.chosen.name, "pattern": read.chosen.pattern.pattern, "share": read.share}


def _layer(inspection: Inspection, index: int) -> dict[str, Any]:
    flow = inspection.flow
    influence = {"influence": flow.influence[index], "influence_perturbed": flow.influence_perturbed[index]}
    return asdict(inspection.layers[index]) | influence


def _clipping(trained: Clipping) -> dict[str, Any]:
    return {
        "limit": trained.limit,
        "steps": trained.steps,
        "logged": len(trained.logged_steps),
        "share": trained.share,
        "factor": trained.factor,
    }


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Tensor():
            return _finite(value.tolist())
        case dict():
            return {key: _finite(part) for key, part in value.items()}
        case list():
            return [_finite(part) for part in value]
    return value
