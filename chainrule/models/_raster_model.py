"""Models of images that keep, layer by layer, what a raster scan still needs: one image costs one pass."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import cache

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule._base import Step
from chainrule.heads import Categorical, DiscretizedLogisticMixture
from chainrule.layers._sequence_layer import is_plain
from chainrule.models._image_model import ImageModel
from chainrule.models._labels import checked_labels
from chainrule.state import State, count_rows, leaves

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
    def _row_length(self) -> int:
        """W·C, the elements of a row."""
        return self.image_shape[2] * self.image_shape[0]

    @abstractmethod
    def blank_rows(self, batch_size: int) -> State:
        """`above` at the top of the image."""

    @abstractmethod
    def conditionals(self, x: Tensor, above: State, label: Tensor | None) -> tuple[Conditional, State]:
        """All conditionals of whole rows x (B, C, n, W) in one pass, of that batch shape, and `above` after them."""

    @abstractmethod
    def prepared_scan(self) -> RasterScan:
        """The weights prepared for single elements."""

    @property
    def scanned(self) -> Iterable[nn.Module]:
        """The modules whose weights `prepared_scan` uses without calling them."""
        return self.children()

    def scan(self) -> RasterScan:
        """What visits the image element by element."""
        return self.prepared_scan() if is_plain(*self.scanned) else _RowScan(self)

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
        time, size, scan = x.shape[1], self._row_length, cache(self.scan)  # whole rows need no scan
        t, parts = 0, []
        while t < time:
            if x_prev is not None:
                state = self._read(scan, x_prev, state)
            if state["row"] is None and (count := (time - t) // size):
                end = t + count * size
                kind, above = self.conditionals(self.from_sequence(x[:, t:end]), state["above"], state["label"])
                parts.append(_in_sequence(kind))
                if end == time:
                    state = {**state, "unread": x[:, t : end - 1].clone()}
                    break
                state, t = {**state, "above": above}, end
            kind, state = self._predict(scan, state)
            parts.append([part.unsqueeze(1) for part in kind.parameters])
            x_prev, t = x[:, t], t + 1
        joined = [torch.cat(part, 1) for part in zip(*parts, strict=True)]
        return kind.with_parameters(*joined), state

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


class _RowScan(RasterScan):
    """Whole rows in place of elements, for modules that have to be called: a row is read once for each element."""

    def __init__(self, model: RasterModel):
        self.model = model

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, State]:
        rows = torch.zeros(count_rows(above), 0, dtype=torch.long, device=leaves(above)[0].device)
        return above, {"above": above, "label": label, "known": rows}

    def predict(self, row: State) -> tuple[Conditional, State]:
        known = row["known"]
        whole = nn.functional.pad(known, (0, self.model._row_length - known.shape[1]))
        kind, _ = self._conditionals(whole, row)
        return kind.with_parameters(*(part[:, known.shape[1]] for part in _in_sequence(kind))), row

    def read(self, x_prev: Tensor, row: State) -> tuple[State, bool]:
        known = torch.cat([row["known"], x_prev.unsqueeze(1)], 1)
        return {**row, "known": known}, known.shape[1] == self.model._row_length

    def end_row(self, above: State, row: State) -> State:
        return self._conditionals(row["known"], row)[1]

    def _conditionals(self, elements: Tensor, row: State) -> tuple[Conditional, State]:
        return self.model.conditionals(self.model.from_sequence(elements), row["above"], row["label"])


def _in_sequence(conditional: Conditional) -> list[Tensor]:
    """The parameters of whole rows (B, C, n, W, K) in visiting order, (B, n·W·C, K)."""
    return [part.permute(0, 2, 3, 1, 4).flatten(1, 3) for part in conditional.parameters]
