"""Checks of the arguments of heads over rows of tags."""

import torch
from torch import Tensor

from chainrule.lengths import check_lengths


def real_places(emissions: Tensor, lengths: Tensor | None, num_tags: int) -> Tensor:
    """(B, T) booleans, true at real places.

    Raises:
        ValueError: emissions are not (B, T, num_tags), or lengths not B integers in [0, T].
    """
    if emissions.dim() != 3 or emissions.shape[2] != num_tags:
        raise ValueError(f"emissions: expected shape (B, T, {num_tags}), got {tuple(emissions.shape)}")
    batch_size, time = emissions.shape[:2]
    if lengths is None:
        return torch.ones(batch_size, time, dtype=torch.bool, device=emissions.device)
    check_lengths(lengths)
    if lengths.shape != (batch_size,):
        raise ValueError(
            f"lengths: expected {batch_size} integers, one a row, got {tuple(lengths.shape)} of {lengths.dtype}"
        )
    if ((lengths < 0) | (lengths > time)).any():
        raise ValueError(f"lengths: expected values in [0, {time}], the places of emissions, got {lengths.tolist()}")
    return torch.arange(time, device=emissions.device) < lengths.to(emissions.device).unsqueeze(1)


def check_tags(tags: Tensor, real: Tensor, num_tags: int) -> None:
    """`ValueError` unless tags are (B, T) integers, in [0, num_tags) where they are real."""
    if tags.shape != real.shape or tags.is_floating_point():
        raise ValueError(
            f"tags: expected integers of shape {tuple(real.shape)}, got {tags.dtype} of {tuple(tags.shape)}"
        )
    wrong = real & ((tags < 0) | (tags >= num_tags))
    if wrong.any():
        raise ValueError(f"tags: expected values in [0, {num_tags}) at real places, got {tags[wrong][0].item()}")
