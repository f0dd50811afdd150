"""Rows of a sample that is drawn in windows: elements that are known, and guesses of those that follow."""

import torch
from torch import Tensor


class GuessedRows:
    """n sequences of which each row is known up to a place of its own.

    Args:
        like: (n,) elements, for their type.
        prefix: (n, P) known elements, or None.
        length: of each row.

    Attributes:
        x: (n, length) known elements, then guesses.
        known: (n,) how many are known; all of a row that has ended.
        ends: (n,) the elements of each row up to its end symbol, that included.
        guesses: how many guesses have been tested, of each window those up to the first wrong one.
        accepted: how many of them were right.
    """

    def __init__(self, like: Tensor, prefix: Tensor | None, length: int):
        self.x = like.new_zeros(len(like), length)
        start = 0
        if prefix is not None:
            start = prefix.shape[1]
            self.x[:, :start] = prefix
        self.known = torch.full((len(like),), start, device=like.device)
        self.ends = torch.full_like(self.known, length)
        self.guesses = self.accepted = 0
        self._old = (self.known - 1).clamp_min(0)  # a prefix may end in the end symbol

    @property
    def known_in_all(self) -> int:
        """How many elements are known in all rows."""
        return int(self.known.min())

    def accept(self, begin: int, symbols: Tensor, right: Tensor) -> None:
        """Add the results of a pass over positions from `begin`, before which all rows are known.

        Args:
            begin: the first position.
            symbols: (n, T) of these positions, right up to the first wrong guess, that position included.
            right: (n, T) whether each guess was right; nothing follows the last.
        """
        time = symbols.shape[1]
        places = torch.arange(begin, begin + time, device=symbols.device)
        fixed = places < self.known.unsqueeze(1)
        self.x[:, begin : begin + time] = torch.where(fixed, self.x[:, begin : begin + time], symbols)
        run = (right | fixed)[:, :-1].long().cumprod(1).sum(1)  # right guesses from the first on, (n,)
        accepted = (begin + run - self.known).clamp_min(0)
        wrong = (run < time - 1) & (self.known < begin + time)
        self.accepted += int(accepted.sum())
        self.guesses += int(accepted.sum()) + int(wrong.sum())
        self._old, self.known = self.known, torch.maximum(self.known, begin + run + 1)

    def end(self, eos: int | None) -> None:
        """Fill rows with the end symbol where it is among the elements that became known last."""
        if eos is None:
            return
        places = torch.arange(self.x.shape[1], device=self.x.device)
        new = (places >= self._old.unsqueeze(1)) & (places < self.known.unsqueeze(1)) & (self.x == eos)
        for row in new.any(1).nonzero().flatten().tolist():
            place = int(new[row].int().argmax())
            self.x[row, place:] = eos
            self.known[row], self.ends[row] = len(places), place + 1
