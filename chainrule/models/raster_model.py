"""Models of images that keep, layer by layer, what a raster scan still needs: one image costs one pass."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule.base import Step
from chainrule.heads import Categorical, DiscretizedLogisticMixture
from chainrule.models.image_model import ImageModel
from chainrule.models.labels import checked_labels
from chainrule.state import State

Conditional = Categorical | DiscretizedLogisticMixture


class RasterScan(ABC):
    """The weights of an image model, prepared for visiting an image element by element.

    A row is a tree of tensors: contributions of the rows above, and features of the elements seen so far.
    """

    @abstractmethod
    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, State]:
        """`above`, which may move on, and a row before its first element."""

    @abstractmethod
    def predict(self, row: State) -> tuple[Conditional, State]:
        """The conditional of the next element, (B,), and the row."""

    @abstractmethod
    def read(self, x_prev: Tensor, row: State) -> tuple[State, bool]:
        """The row with one more element, (B,) integers, and whether it is full."""

    @abstractmethod
    def end_row(self, above: State, row: State) -> State:
        """`above` for the next row, from a full one."""


class RasterModel(ImageModel):
    """An image model that reads whole rows in one pass, or element by element through its `RasterScan`.

    The state holds the rows above that are still needed (`above`) and the present row (`row`; `None` between rows).
    After whole rows that `unroll` read in one pass, it holds their elements without the last (`unread`): when that
    comes, another pass over them moves `above` on. Its parts are replaced, never written to.
    """

    @property
    def block_length(self) -> int:
        """W·C, the elements of a row."""
        return self.image_shape[2] * self.image_shape[0]

    @abstractmethod
    def blank_rows(self, batch_size: int) -> State:
        """`above` at the top of the image."""

    @abstractmethod
    def conditionals(self, x: Tensor, above: State, label: Tensor | None) -> tuple[Conditional, State]:
        """All conditionals of whole rows x (B, C, n, W) in one pass, of that batch shape, and `above` after them."""

    @abstractmethod
    def scan(self) -> RasterScan:
        """The weights prepared for single elements."""

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        return {
            "label": checked_labels(context, batch_size, self.num_classes),
            "above": self.blank_rows(batch_size),
            "row": None,
            "unread": None,
        }

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        return self._step(cache(self.scan), x_prev, state)

    def stepper(self) -> Step:
        with torch.no_grad():
            scan = self.scan()
        return lambda x_prev, state: self._step(lambda: scan, x_prev, state)

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        """The conditionals of a chunk; its whole rows in one pass, the rest element by element."""
        time, size, scan = x.shape[1], self.block_length, cache(self.scan)  # whole rows need no scan
        t, parts = 0, []
        while t < time:
            if x_prev is not None:
                state = self._read(scan, x_prev, state)
            if state["row"] is None and (count := (time - t) // size):
                end = t + count * size
                kind, above = self.conditionals(self.from_sequence(x[:, t:end]), state["above"], state["label"])
                parts.append([part.permute(0, 2, 3, 1, 4).flatten(1, 3) for part in _parameters(kind)])  # (B, t, K)
                if end == time:
                    state = {**state, "unread": x[:, t : end - 1].clone()}
                    break
                state, t = {**state, "above": above}, end
            kind, state = self._predict(scan, state)
            parts.append([part.unsqueeze(1) for part in _parameters(kind)])
            x_prev, t = x[:, t], t + 1
        joined = [torch.cat(part, 1) for part in zip(*parts, strict=True)]
        return Categorical(*joined) if isinstance(kind, Categorical) else kind.with_parameters(*joined), state

    def rewind(self, before: State, after: State, x: Tensor, x_prev: Tensor | None, kept: int) -> State:
        if after["unread"] is None or kept % self.block_length or after["unread"].shape[1] != x.shape[1] - 1:
            return super().rewind(before, after, x, x_prev, kept)
        return {**after, "unread": after["unread"][:, : kept - 1]}

    def _step(self, scan: Callable[[], RasterScan], x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        return self._predict(scan, state if x_prev is None else self._read(scan, x_prev, state))

    def _read(self, scan: Callable[[], RasterScan], x_prev: Tensor, state: State) -> State:
        """Add the element to the present row, and the row, when it is full, to those above."""
        if state["unread"] is not None:
            rows = self.from_sequence(torch.cat([state["unread"], x_prev.unsqueeze(1)], 1))
            _, above = self.conditionals(rows, state["above"], state["label"])
            return {**state, "above": above, "unread": None}
        row, full = scan().read(x_prev, state["row"])
        return {**state, "above": scan().end_row(state["above"], row), "row": None} if full else {**state, "row": row}

    def _predict(self, scan: Callable[[], RasterScan], state: State) -> tuple[Conditional, State]:
        above, row = state["above"], state["row"]
        if row is None:
            above, row = scan().begin_row(above, state["label"])
        conditional, row = scan().predict(row)
        return conditional, {**state, "above": above, "row": row}


def _parameters(conditional: Conditional) -> tuple[Tensor, ...]:
    return (conditional.logits,) if isinstance(conditional, Categorical) else conditional.parameters
