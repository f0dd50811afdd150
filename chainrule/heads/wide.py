"""log softmax at one symbol a row, over a vocabulary so wide that the table of scores does not fit a cache."""

from typing import Any

import torch
from torch import Tensor

from chainrule.transforms import records_or_transforms

CACHE = 2**19  # float32 numbers worked on at a time: 2 MiB


def picked_log_softmax(scores: Tensor, value: Tensor) -> Tensor:
    r""":math:`a_v - \log \sum_u e^{a_u}` of each row, (R,), in float32 at least.

    Equal to minus `torch.nn.functional.cross_entropy`, a few rows at a time: scores, exponentials and the gradient
    :math:`y - p` of a few rows stay in the processor's cache, where whole tables of R·V numbers would go through memory
    half a dozen times.

    Args:
        scores: (R, V).
        value: (R,) integers in [0, V).
    """
    picked: Tensor = _Picked.apply(scores, value)
    return picked


class _Picked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor) -> Tensor:
        column = value.unsqueeze(1)
        normaliser = torch.empty(column.shape, dtype=_wide(scores.dtype), device=scores.device)
        picked = torch.empty_like(normaliser)
        for rows in _pieces(scores):
            part = scores[rows].to(normaliser.dtype)
            torch.logsumexp(part, 1, keepdim=True, out=normaliser[rows])
            torch.gather(part, 1, column[rows], out=picked[rows])
        ctx.save_for_backward(scores, column, normaliser)
        return (picked - normaliser).squeeze(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        scores, column, normaliser = ctx.saved_tensors
        gradient = gradient.unsqueeze(1)
        if records_or_transforms(gradient):  # in one piece and in plain operations
            probability = scores.to(normaliser.dtype).softmax(1)
            return (-gradient * probability).scatter_add(1, column, gradient).to(scores.dtype), None
        d_scores = torch.empty_like(scores)
        for rows in _pieces(scores):
            probability = torch.sub(scores[rows], normaliser[rows]).exp_()
            probability.mul_(-gradient[rows]).scatter_add_(1, column[rows], gradient[rows])
            d_scores[rows] = probability
        return d_scores, None


def _pieces(scores: Tensor) -> list[slice]:
    size = max(CACHE // scores.shape[1], 1)
    return [slice(start, start + size) for start in range(0, scores.shape[0], size)]


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
