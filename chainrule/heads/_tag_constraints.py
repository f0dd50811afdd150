"""Constraints of the BIO and BIOES tagging schemes, and checks of tags and lengths."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from chainrule._checks import check_lengths
from chainrule.kernels._transforms import values_are_known


class TagConstraints(NamedTuple):
    """Allowed sequences of K tags, as booleans.

    Attributes:
        transitions: (K, K) true where the second tag may follow the first.
        starts: (K,) true where a sequence may begin with the tag.
        ends: (K,) true where a sequence may end with the tag.
    """

    transitions: Tensor
    starts: Tensor
    ends: Tensor

    @classmethod
    def bio(cls, tags: Sequence[str]) -> "TagConstraints":
        """Allow tag sequences in which I-X follows B-X or I-X only (Ramshaw and Marcus 1995).

        Args:
            tags: names of the tags in the order of their indices: O, and B-X and I-X for any types X.

        Raises:
            ValueError: a tag is invalid or repeated, or there is an I-X without a B-X.

        >>> TagConstraints.bio(["O", "B-PER", "I-PER"]).transitions.int()
        tensor([[1, 1, 0],
                [1, 1, 1],
                [1, 1, 1]], dtype=torch.int32)
        """
        return _constraints(tags, {"B": "B", "I": "B"}, "", "for B, I, E, S use TagConstraints.bioes")

    @classmethod
    def bioes(cls, tags: Sequence[str]) -> "TagConstraints":
        """Allow tag sequences in which every span is S-X, or B-X, then any number of I-X, then E-X.

        Args:
            tags: names of the tags in the order of their indices: O, and B-X, I-X, E-X and S-X for any types X.

        Raises:
            ValueError: a tag is invalid or repeated, or belongs to a span that cannot begin or end.

        >>> TagConstraints.bioes(["O", "B-PER", "E-PER", "S-PER"]).transitions.int()
        tensor([[1, 1, 0, 1],
                [0, 0, 1, 0],
                [1, 1, 0, 1],
                [1, 1, 0, 1]], dtype=torch.int32)
        """
        return _constraints(tags, {"B": "E", "I": "B", "E": "B", "S": "S"}, "BI", "rename them")


def _constraints(tags: Sequence[str], needs: Mapping[str, str], opens: str, remedy: str) -> TagConstraints:
    """Build constraints; `needs` maps a letter to another that its type requires, `opens` lists letters that go on."""
    if not tags or len(set(tags)) < len(tags):
        raise ValueError(f"tags: expected different tags, at least one, got {list(tags)}")
    marks = [(tag.partition("-")[0], tag.partition("-")[2]) for tag in tags]
    for tag, (letter, kind) in zip(tags, marks, strict=True):
        if tag != "O" and not (letter in needs and kind):
            expected = ", ".join(f"{letter}-X" for letter in needs)
            raise ValueError(f"tags: expected O, {expected}, got {tag!r}: {remedy}")
        if letter in needs and (needs[letter], kind) not in marks:
            raise ValueError(
                f"tags: {tag!r} could never be used, as there is no '{needs[letter]}-{kind}': add it, or use the "
                "constraints of the other scheme"
            )
    # Always on the CPU: with the meta device as default the tensors would have no values.
    starts = torch.tensor([letter not in "IE" for letter, _ in marks], device="cpu")
    ends = torch.tensor([letter not in opens for letter, _ in marks], device="cpu")
    inside = [
        [letter in "BI" and following in "IE" and kind == its_kind for following, its_kind in marks]
        for letter, kind in marks
    ]
    return TagConstraints(ends.unsqueeze(1) & starts | torch.tensor(inside, device="cpu"), starts, ends)


def real_places(emissions: Tensor, lengths: Tensor | None, num_tags: int) -> Tensor:
    """Return (B, T) booleans, true at positions before each row's end."""
    if emissions.dim() != 3 or emissions.shape[2] != num_tags:
        raise ValueError(f"emissions: expected shape (B, T, {num_tags}), got {tuple(emissions.shape)}")
    batch_size, time = emissions.shape[:2]
    if lengths is None:
        return torch.ones(batch_size, time, dtype=torch.bool, device=emissions.device)
    check_lengths(lengths, (batch_size, time))
    return torch.arange(time, device=emissions.device) < lengths.to(emissions.device).unsqueeze(1)


def check_tags(tags: Tensor, real: Tensor, num_tags: int) -> None:
    """Raise ValueError unless tags are (B, T) integers in [0, num_tags) outside padding."""
    if tags.shape != real.shape or tags.is_floating_point():
        raise ValueError(
            f"tags: expected integers of shape {tuple(real.shape)}, got {tags.dtype} of {tuple(tags.shape)}"
        )
    tags = tags.long()  # in a narrow dtype such as int8 `num_tags` would overflow
    wrong = real & ((tags < 0) | (tags >= num_tags))
    if values_are_known(wrong) and wrong.any():
        raise ValueError(f"tags: expected values in [0, {num_tags}) outside padding, got {tags[wrong][0].item()}")
