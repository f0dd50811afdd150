"""The condition of a forecast, checked."""

from typing import TypedDict

import torch
from torch import Tensor

from chainrule.base import Context
from chainrule.modes import values_are_known

_KEYS = {"past", "covariates", "series"}


class SeriesContext(TypedDict):
    """The past (B, P), covariates (B, P + T, F) or None, and which series each row is of, (B,) integers."""

    past: Tensor
    covariates: Tensor | None
    series: Tensor


def read_context(context: Context, rows: int, num_series: int, num_covariates: int) -> SeriesContext:
    """The parts of a context, each with `rows` rows.

    Args:
        context: a dict with "past", "covariates" and "series", or the past alone.
        rows: B; parts with one row serve them all.
        num_series: of the model; 1 leaves "series" out.
        num_covariates: F; 0 leaves "covariates" out.

    Raises:
        ValueError: a part is missing, superfluous or of another shape.
    """
    if isinstance(context, Tensor):
        context = {"past": context}
    needed = {"past"} | ({"covariates"} if num_covariates else set()) | ({"series"} if num_series > 1 else set())
    given = set(context) if isinstance(context, dict) else None
    if given is None or not needed <= given or not given <= _KEYS:
        got = type(context).__name__ if given is None else ", ".join(sorted(given)) or "nothing"
        raise ValueError(f"context: expected a dict with {', '.join(sorted(needed))}, got {got}")
    past = context["past"]
    if past.dim() != 2 or past.shape[1] < 1 or len(past) not in (1, rows):
        raise ValueError(f"past: expected shape (B, P) with B = {rows} and P >= 1, got {tuple(past.shape)}")
    past = past.expand(rows, -1)
    return {
        "past": past if past.is_floating_point() else past.double(),
        "covariates": _covariates(context.get("covariates"), rows, past.shape[1], num_covariates),
        "series": _series(context.get("series"), past, num_series),
    }


def _covariates(covariates: Tensor | None, rows: int, past: int, size: int) -> Tensor | None:
    if covariates is None:
        return None
    shape = covariates.shape
    if len(shape) != 3 or len(covariates) not in (1, rows) or shape[1] < past or shape[2] != size:
        raise ValueError(
            f"covariates: expected shape (B, P + T, F) with B = {rows}, P = {past}, F = {size}, got {tuple(shape)}"
        )
    return covariates.expand(rows, -1, -1)


def _series(series: Tensor | None, past: Tensor, count: int) -> Tensor:
    if series is None:
        return torch.zeros(len(past), dtype=torch.long, device=past.device)
    if series.dim() != 1 or len(series) not in (1, len(past)) or series.is_floating_point():
        raise ValueError(f"series: expected ({len(past)},) integers, got shape {tuple(series.shape)} of {series.dtype}")
    if len(series) and values_are_known(series) and not 0 <= int(series.min()) <= int(series.max()) < count:
        raise ValueError(
            f"series: expected numbers from 0 to {count - 1}, got {int(series.min())} to {int(series.max())}"
        )
    return series.expand(len(past)).long()
