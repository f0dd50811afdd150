"""Models of images that keep, layer by layer, what a raster scan still needs: one image costs one pass."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from chainrule._base import Context
from chainrule._checks import check_prefix
from chainrule._executor import Executor
from chainrule.heads import Categorical, DiscretizedLogisticMixture
from chainrule.heads._adapter import Draw
from chainrule.kernels._compiled import compiled_loops, first_compiled
from chainrule.kernels._raster_bodies import RasterLogits
from chainrule.kernels._raster_convolutions import PIXELS, RasterBody, RasterConvolutions
from chainrule.kernels._raster_program import Program
from chainrule.kernels._transforms import may_prepare, needs_plain_form
from chainrule.layers._gated_pyramid import GatedStreams
from chainrule.layers._masked_conv2d import PixelLogits, RasterLayer
from chainrule.models._conditioned import checked_labels
from chainrule.models._image_model import ImageModel
from chainrule.modes import own_draws
from chainrule.state import State, count_rows, leaves


@torch.no_grad()
def dependencies(network: nn.Module, function: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """Find which outputs of a network a path connects to a non-zero input; it writes to the network.

    It runs with positive weights and zero biases, in float64: then zeros stay zeros through products, rectifiers, gates
    and recurrences, and nothing that is positive cancels. Masks and the order of the layers are its own. A narrow
    network is as good as a wide one. Inputs (R, ...) are zeros, and other numbers at the elements in question.
    """
    generator = torch.Generator().manual_seed(0)
    network.double().eval()
    for weight in network.parameters():
        if weight.dim() < 2:
            weight.zero_()
        else:  # of a size that neither vanishes nor overflows in deep networks
            weight.uniform_(0.5, 1.0, generator=generator).mul_(weight[0].numel() ** -0.5)
    return function(inputs.double()) != 0


def raster_dependencies(
    network: nn.Module, function: Callable[[Tensor], Tensor], image_shape: tuple[int, int, int], period: int = 1
) -> Tensor:
    """Mark the earlier elements that can influence each element, for a network that reads in raster order.

    It does the same at every row, or at every `period` rows, so that the elements of the first ones tell it all. The
    function maps images (B, C, H, W) to an output for each element. Returns (T, T) booleans in visiting order,
    T = H·W·C, true at [t, s] where x_s can influence the output t.
    """
    channels, height, width = image_shape
    time, block = height * width * channels, min(period, height) * width * channels
    first = torch.eye(block, time, device="cpu").view(block, height, width, channels).permute(0, 3, 1, 2)
    seen = dependencies(network, function, first).permute(0, 2, 3, 1).flatten(1)  # (block, T)
    whole = torch.zeros(time, time, dtype=torch.bool, device="cpu")
    for start in range(0, time, block):
        whole[start : start + block, start:] = seen[: time - start, : time - start]
    return whole.t()


def pixel_dependencies(streams: GatedStreams, image_shape: tuple[int, int, int]) -> Tensor:
    """Mark the earlier elements that can influence each one through streams that read whole pixels, as above."""
    colours, height, width = image_shape
    pyramid = streams.vertical
    with torch.device("cpu"), own_draws(0):
        narrow = GatedStreams(1, 2, len(pyramid.down), pyramid.resolutions)
    pixels = raster_dependencies(
        narrow,
        lambda image: narrow(image, narrow.blank_rows(len(image), width), None)[0].sum(1, keepdim=True),
        (1, height, width),
        period=2 ** (pyramid.resolutions - 1),
    )
    elements = pixels.repeat_interleave(colours, 0).repeat_interleave(colours, 1)
    own = torch.block_diag(*[torch.ones(colours, colours, device="cpu").tril(-1)] * (height * width)) > 0
    return elements | own


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
        """Return the conditional of the next element, (B,), and the row."""

    @abstractmethod
    def read(self, x_prev: Tensor, row: State) -> tuple[State, bool]:
        """Return the row with one more element, (B,) integers, and whether it is full."""

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
        """Return all conditionals of whole rows x (B, C, n, W) in one pass, shape as x, and `above` after them."""

    @abstractmethod
    def prepared_scan(self) -> RasterScan:
        """Return the weights prepared for single elements."""

    @property
    def scanned(self) -> Iterable[nn.Module]:
        """The modules whose weights `prepared_scan` uses without calling them."""
        return self.children()

    def scan(self) -> RasterScan:
        """Return the scan that visits the image element by element."""
        return self.prepared_scan() if may_prepare(*self.scanned) else _RowScan(self)

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        return {
            "label": checked_labels(context, batch_size, self.num_classes),
            "above": self.blank_rows(batch_size),
            "row": None,
            "unread": None,
        }

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Distribution, State]:
        return self._step(cache(self.scan), x_prev, state)

    def program(self) -> Program | None:
        """Return the operations with which compiled loops draw whole images, if there are any."""
        return None

    def prepare(self) -> Executor:
        return RasterExecutor(self)

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Distribution, State]:
        """Read the conditionals of a chunk; its whole rows in one pass, the rest element by element."""
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


SAVED = 1.2e-3
"""Estimate of the seconds that compiled loops save per element of an image."""


class RasterExecutor(Executor):
    """An image model prepared for single elements; compiled loops draw whole images."""

    model: RasterModel

    def __init__(self, model: RasterModel):
        scan = cache(torch.no_grad()(model.scan))
        super().__init__(model, lambda x_prev, state: model._step(scan, x_prev, state))

    def rows(
        self, n: int, count: int, context: Context, prefix: Tensor | None, pick: Draw, eos: int | None = None
    ) -> Tensor:
        program = self._program(count, pick) if eos is None else None
        if program is None:
            return super().rows(n, count, context, prefix, pick, eos)
        with torch.no_grad():
            state = self.model.initial_state(n, context)
            if prefix is not None and prefix.shape[1]:
                check_prefix(self.unroll(prefix, state)[0], prefix)
            draw_row = program.start(n, state["label"], prefix, pick.generator)
            rows = [draw_row(row) for row in range(self.model.image_shape[1])]
            nowhere = Categorical(torch.full((1, 1), torch.nan, device="cpu"))  # a draw raises
            return torch.cat([pick(nowhere) if row is None else row for row in rows], 1)

    def _program(self, count: int, pick: Draw) -> Program | None:
        """Return the model's program where it may run, and `count` elements pay for loading numba."""
        model = self.model
        filtered = (pick.temperature, pick.top_k, pick.top_p) != (1, None, None)
        if first_compiled(SAVED, count) is None or filtered or needs_plain_form() or not may_prepare(*model.scanned):
            return None
        return None if compiled_loops(next(model.parameters())) is None else model.program()


class _RowScan(RasterScan):
    """Scan of whole rows instead of elements, for modules that must be called: a row is read once for each element."""

    def __init__(self, model: RasterModel):
        self.model = model

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, State]:
        rows = torch.zeros(count_rows(above), 0, dtype=torch.long, device=leaves(above)[0].device)
        return above, {"above": above, "label": label, "known": rows}

    def predict(self, row: State) -> tuple[Conditional, State]:
        elements = row["known"]
        whole = nn.functional.pad(elements, (0, self.model._row_length - elements.shape[1]))
        kind, _ = self._conditionals(whole, row)
        return kind.with_parameters(*(part[:, elements.shape[1]] for part in _in_sequence(kind))), row

    def read(self, x_prev: Tensor, row: State) -> tuple[State, bool]:
        elements = torch.cat([row["known"], x_prev.unsqueeze(1)], 1)
        return {**row, "known": elements}, elements.shape[1] == self.model._row_length

    def end_row(self, above: State, row: State) -> State:
        return self._conditionals(row["known"], row)[1]

    def _conditionals(self, elements: Tensor, row: State) -> tuple[Conditional, State]:
        return self.model.conditionals(self.model.from_sequence(elements), row["above"], row["label"])


def _in_sequence(conditional: Conditional) -> list[Tensor]:
    """Return the parameters of whole rows (B, C, n, W, K) in visiting order, (B, n·W·C, K)."""
    return [part.permute(0, 2, 3, 1, 4).flatten(1, 3) for part in conditional.parameters]


class MaskedImageModel(RasterModel):
    """A first convolution of type A, `RasterLayer`s, and `PixelLogits` for a categorical distribution.

    `above` is a dict of the image's rows, and of what each layer needs of earlier rows, "layers".
    """

    first: Any  # the layer that reads the image
    layers: nn.ModuleList
    head: PixelLogits

    def blank_rows(self, batch_size: int) -> State:
        colours, _, width = self.image_shape
        features = self.first.weight.new_zeros(batch_size, len(self.first.weight), 1, width)
        layers = [cast(RasterLayer, layer).blank_rows(features) for layer in self.layers]
        return {PIXELS: features.new_zeros(batch_size, colours, self.first.rows_above, width), "layers": layers}

    def rows(self, pixels: Tensor, above: State, label: Tensor | None) -> tuple[Tensor, State]:
        """Scores (B, C·V, n, W) of whole rows, (B, C, n, W) numbers from -1 to 1, and `above` for the rows that
        follow.
        """
        image = torch.cat([above[PIXELS], pixels], 2)
        h, after = self.read_image(image, above), []
        for layer, rows in zip(self.layers, above["layers"], strict=True):
            h, rows = layer(h, rows, label, pixels) if layer.reads_image else layer(h, rows, label)
            after.append(rows)
        return self.head(h), {PIXELS: image[:, :, pixels.shape[2] :], "layers": after}

    def read_image(self, image: Tensor, above: State) -> Tensor:
        """The features of the first layer, (B, M, n, W), from the rows above and those read."""
        features: Tensor = self.first(image, with_above=True)
        return features

    @abstractmethod
    def narrow(self) -> "MaskedImageModel":
        """Return a model of the same depth and kernels, as narrow as can be: it reads what this one reads."""

    @abstractmethod
    def body(self) -> tuple[RasterConvolutions, RasterBody]:
        """Return the convolution that reads the image and the layers after it, prepared for single elements."""

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Categorical:
        """Return all conditionals, batch shape (B, C, H, W); `lengths` has no effect: conditionals read the past."""
        self.images.checked(x)
        return self.conditionals(x, self.blank_rows(len(x)), checked_labels(context, len(x), self.num_classes))[0]

    def conditionals(self, x: Tensor, above: State, label: Tensor | None) -> tuple[Categorical, State]:
        scores, above = self.rows(self._scaled(x, above[PIXELS]), above, label)
        return Categorical(scores.unflatten(1, (-1, self.levels)).movedim(2, -1)), above

    def prepared_scan(self) -> RasterScan:
        return _MaskedScan(self)

    def visible_past(self, length: int) -> Tensor:
        """Mark the earlier elements that can influence each conditional through the masks, (T, T) booleans."""
        with torch.device("cpu"), own_draws(0):
            narrow = self.narrow()

        def read(pixels: Tensor) -> Tensor:
            scores, _ = narrow.rows(pixels, narrow.blank_rows(len(pixels)), None)
            return scores.unflatten(1, (self.image_shape[0], -1)).sum(2)  # (B, C, H, W)

        return raster_dependencies(narrow, read, self.image_shape)[:length, :length]


class _MaskedScan(RasterScan):
    """A row is (from_above, seen), by the names of the convolutions."""

    def __init__(self, model: MaskedImageModel):
        self.model = model
        self.first, self.body = model.body()
        self.head = RasterLogits(model.head)
        self.convolutions = {PIXELS: self.first, **self.body.convolutions, **self.head.convolutions}
        self.whole_rows = self.body.whole_rows | {PIXELS}

    def begin_row(self, above: State, label: Tensor | None) -> tuple[State, State]:
        above, from_above = self.body.begin_row(above, label)
        if PIXELS not in from_above:
            from_above = {**from_above, PIXELS: self.first.from_above(above[PIXELS])}
        return above, (from_above, {name: part.begin_row(above[PIXELS]) for name, part in self.convolutions.items()})

    def predict(self, row: State) -> tuple[Conditional, State]:
        from_above, seen = row
        column, group = divmod(self.first.count(seen[PIXELS]), self.model.image_shape[0])
        (h,) = self.first.known(group, seen[PIXELS], from_above[PIXELS], column)
        h, body = self.body.element(h, group, column, from_above, seen)
        scores, head = self.head.element(h, group, seen)
        seen = {**seen, **{name: self._see(name, seen[name], new) for name, new in {**body, **head}.items()}}
        return Categorical(scores), (from_above, seen)

    def read(self, x_prev: Tensor, row: State) -> tuple[State, bool]:
        from_above, seen = row
        pixels = self._see(
            PIXELS, seen[PIXELS], [self.model._scaled(x_prev, self.model.head.hidden.weight).unsqueeze(1)]
        )
        channels, _, width = self.model.image_shape
        return (from_above, {**seen, PIXELS: pixels}), self.first.count(pixels) == channels * width

    def end_row(self, above: State, row: State) -> State:
        _, seen = row
        full = {name: self.convolutions[name].row(seen[name], self.model.image_shape[2]) for name in self.whole_rows}
        image = torch.cat([above[PIXELS], full[PIXELS]], 2)[:, :, 1:]
        return {**self.body.end_row(above, full), PIXELS: image}

    def _see(self, name: str, seen: list[Tensor], features: Sequence[Tensor]) -> list[Tensor]:
        return self.convolutions[name].see(seen, features, whole_row=name in self.whole_rows)
