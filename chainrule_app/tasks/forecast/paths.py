"""Draw paths of forecasts from a trained forecaster."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chainrule_app.heavy import modes, np, torch
from chainrule_app.readers import series as series_reader

if TYPE_CHECKING:
    import numpy.typing as npt

    from chainrule import AutoregressiveModel

    Floats = npt.NDArray[np.float64]

_TOGETHER = 1 << 14  # paths drawn side by side


def draw_paths(
    model: "AutoregressiveModel",
    values: "Floats",
    features: "Floats",
    places: Sequence[tuple[int, int]],
    spans: "npt.NDArray[np.int64]",
    past: int,
    horizon: int,
    paths: int,
    seed: int,
) -> "Floats":
    """Draw n paths of P forecasts, (n, P, H), from `past` rows before each place: a row and the number of a series."""
    from chainrule.data import SeriesWindows
    from chainrule.decoding import sample_paths

    generator = torch.Generator(modes.device_of(model)).manual_seed(seed)
    block = max(_TOGETHER // paths, 1)
    result: Floats = np.empty((paths, len(places), horizon))
    for known, numbers in series_reader.by_past(places, spans, past):
        for start in range(0, len(numbers), block):
            chosen = numbers[start : start + block]
            context = SeriesWindows.context(values, features, [places[number] for number in chosen], known, horizon)
            drawn = sample_paths(model, context, paths=paths, length=horizon, generator=generator)
            result[:, chosen] = drawn.cpu().view(len(chosen), paths, horizon).movedim(1, 0).double().numpy()
    return result
