"""A MADE one column at a time, every unit computed once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from chainrule.kernels._compiled import compiled_loops
from chainrule.state import State

Pick: TypeAlias = Callable[[Tensor], Tensor]
"""Draws a column from its logits, both (n,)."""
BLOCK = 64  # columns between two large products
MANY = 256  # columns of a sample from which on a compiled loop draws them; loading numba pays after some samples


@dataclass(frozen=True)
class DegreeLayer:
    """A layer of a MADE as it was trained, with the degrees of its units.

    Args:
        degrees: (M,) integers; a unit of degree m is computed when m columns are known.
        bias: (M,).
        weights: (M, inputs) for each place it reads: 0 are the columns, 1, 2, ... the hidden layers.
        context_weight: (M, N), or None where it does not read the context.
    """

    degrees: Tensor
    bias: Tensor
    weights: dict[int, Tensor]
    context_weight: Tensor | None = None

    def detached(self) -> "DegreeLayer":
        """Return the layer without gradients; a view of a parameter has one even where it is made without."""
        weights = {source: weight.detach() for source, weight in self.weights.items()}
        context_weight = None if self.context_weight is None else self.context_weight.detach()
        return DegreeLayer(self.degrees, self.bias.detach(), weights, context_weight)


class Columns:
    """The steps of a MADE: from the columns known so far to the logit of the next one.

    A unit of degree m reads what has a degree of m or less. With the units sorted by degree, slices take the place of
    masks. Columns come in blocks: what a block's units read of earlier blocks is one large product when the block
    begins, and what they read of each other a small product at each step. All steps together do the arithmetic of the
    free weights once, half of what `forward` does with its zeros.

    A state is (context, done, recent, begun): columns and hidden units of earlier blocks, and of this one; and what
    earlier blocks contribute to this one's pre-activations and logits. Each of the three is a tuple of (B, ...)
    tensors, one a layer. No tensor of a state is ever written to.

    Args:
        order: (D,) the order of the columns.
        layers: the hidden layers, and the output as a layer whose unit of degree t is the logit of the column visited
            after t others.
        project: multiplies a context (B, ...) with weights (M, N), to (B, M).
    """

    def __init__(self, order: Tensor, layers: Sequence[DegreeLayer], project: Callable[[Tensor, Tensor], Tensor]):
        self.size = len(order)
        self.layers, self._project = list(layers), project
        # Place 0 are the columns, then one place a layer.
        self.sorted = [order, *(layer.degrees.argsort(stable=True) for layer in layers)]
        self.in_order = [torch.equal(units, torch.arange(len(units), device=units.device)) for units in self.sorted]
        counts = [torch.bincount(layer.degrees, minlength=self.size) for layer in layers]
        self.complete = [list(range(1, self.size + 1)), *(count.cumsum(0).tolist() for count in counts)]
        self.blocks: dict[int, list[dict[int, Tensor]]] = {}

    def initial_state(self, batch_size: int, context: Tensor | None) -> State:
        empty = self.layers[0].bias.new_zeros(batch_size, 0)
        nothing = (empty,) * len(self.layers)
        with self._exact():
            return context, nothing, nothing, self._begun_rows(0, nothing, context)

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Tensor, State]:
        with self._exact():
            return self._step(x_prev, state)

    def _step(self, x_prev: Tensor | None, state: State) -> tuple[Tensor, State]:
        context, done, recent, begun = state
        first, t = done[0].shape[1], 0
        if x_prev is not None:
            columns = torch.cat([recent[0], x_prev.to(recent[0]).unsqueeze(1)], 1)
            t = first + columns.shape[1]
            if t == self.size:
                raise ValueError(f"x_prev: expected one of the first {t - 1} columns, got the last: nothing follows it")
            recent = (columns, *recent[1:])
            if columns.shape[1] == BLOCK:
                done = tuple(torch.cat(pair, 1) for pair in zip(done, recent, strict=True))
                recent = tuple(part[:, :0] for part in recent)
                first, begun = t, self._begun_rows(t, done, context)
        block = self._block(first)
        units = [*recent]
        for layer, weights in enumerate(block[:-1], start=1):
            offset = done[layer].shape[1]
            start, stop = (self.complete[layer][t - 1] if t else 0) - offset, self.complete[layer][t] - offset
            if start < stop:
                activation = begun[layer - 1][:, start:stop]
                for source, weight in weights.items():
                    read = units[source]
                    here = done[source].shape[1]
                    activation = torch.addmm(activation, read, weight[start:stop, here : here + read.shape[1]].t())
                units[layer] = torch.cat([units[layer], activation.relu()], 1)
        logits = begun[-1][:, t - first]
        for source, weight in block[-1].items():
            read = units[source]
            here = done[source].shape[1]
            logits = torch.addmv(logits, read, weight[t - first, here : here + read.shape[1]])
        return logits, (context, done, tuple(units), begun)

    def _begun_rows(self, first: int, done: tuple[Tensor, ...], context: Tensor | None) -> tuple[Tensor, ...]:
        return tuple(part.t() for part in self._begun(first, [units.t() for units in done], context))

    def draws(self, n: int, context: Tensor | None, prefix: Tensor | None, pick: Pick) -> Iterator[Tensor]:
        """Draw n rows of columns, (n,) each, in their order: what `step` computes, in buffers that nobody else holds.

        Weights are to be `detached`. Units are rows here, so that the units of a degree, and of a block, lie
        together. What is not computed yet is zero, and adds nothing to a product with the whole block: the operations
        of a step need no separate slices.
        """
        prefix_columns = [] if prefix is None else list(prefix.t())
        values = [self.layers[0].bias.new_zeros(len(units), n) for units in self.sorted[:-1]]
        for first in range(0, self.size, BLOCK):
            with torch.no_grad(), self._exact():
                columns, layers, readings, logits = self._opened(first, values, context)
            for j, (column, logit) in enumerate(zip(columns, logits, strict=True)):
                with self._exact():  # entered for each column: a generator must not leak it to its caller
                    for read, activations, weights, units in layers:
                        if j in units:
                            torch.addmm(activations[j], weights[j], read, out=units[j]).relu_()
                    for read, weights in readings:
                        logit = torch.addmv(logit, read, weights[j])
                    in_prefix = first + j < len(prefix_columns)
                    drawn = prefix_columns[first + j] if in_prefix else pick(logit)
                    column.copy_(drawn)
                if not in_prefix:
                    yield drawn

    def has_loop(self, count: int) -> bool:
        """Return whether `rows` may draw the last `count` columns, and pays for loading numba."""
        return count >= MANY and compiled_loops(self.layers[0].bias) is not None

    @torch.no_grad()
    def rows(
        self, n: int, context: Tensor | None, prefix: Tensor | None, pick: Pick, generator: torch.Generator | None
    ) -> Tensor:
        """Return the columns after a prefix, (n, .), drawn by a compiled loop as `draws` gives them.

        The numbers of a block are drawn from the generator at once, which gives them in the same order. Logits that
        are not finite go to `pick`, for its error.
        """
        known = 0 if prefix is None else prefix.shape[1]
        sizes = [len(place) for place in self.sorted[:-1]]
        units = self.layers[0].bias.new_zeros(sum(sizes), n)
        values = units.split(sizes)
        for first in range(0, self.size, BLOCK):
            columns = values[0][first : first + BLOCK]
            given = min(max(known - first, 0), len(columns))
            if prefix is not None:
                columns[:given] = prefix[:, first : first + given].t()
            columns[given:].uniform_(generator=generator)
            wrong = self._draw(first, given, units, values, context)
            if wrong is not None:
                pick(wrong)
        return values[0][known:].t()

    def _draw(
        self, first: int, given: int, units: Tensor, values: Sequence[Tensor], context: Tensor | None
    ) -> Tensor | None:
        """Draw the columns of a block but for the given ones, which hold uniform numbers; units are all values.

        Returns the first logits that are not finite.
        """
        from chainrule.kernels._compiled_made import draw_block

        complete = self._complete_in(first)
        done = [value[: counts[0]] for value, counts in zip(values, complete, strict=False)]
        *begun, logits = self._begun(first, done, context)
        for value, counts, activations in zip(values[1:], complete[1:], begun, strict=False):
            value[counts[0] : counts[-1]] = activations
        # Of the logits, the matrix that reads the last hidden layer comes first.
        matrices = [
            weights[source][:, complete[source][0] : complete[source][-1]]
            for weights in self._block(first)
            for source in sorted(weights, reverse=True)
        ]
        begins = accumulate((matrix.numel() for matrix in matrices[:-1]), initial=0)
        starts = accumulate(map(len, values[:-1]), initial=0)
        wrong = draw_block(
            units.numpy(),
            np.array([start + counts[0] for start, counts in zip(starts, complete[:-1], strict=True)]),
            np.array([[count - counts[0] for count in counts] for counts in complete[:-1]]),
            torch.cat([matrix.flatten() for matrix in matrices]).numpy(),
            np.array([(begin, matrix.shape[1]) for begin, matrix in zip(begins, matrices, strict=True)]),
            logits.numpy(),
            given,
        )
        return logits[wrong] if wrong < len(logits) else None

    def _complete_in(self, first: int) -> list[list[int]]:
        """Return, for each place, how many units are complete before and after each column of a block."""
        last = min(first + BLOCK, self.size)
        return [[complete[first - 1] if first else 0, *complete[first:last]] for complete in self.complete]

    def _exact(self) -> AbstractContextManager[Any]:
        """Disable autocast, which some of the fused products here do not support."""
        kind = self.layers[0].bias.device.type
        return torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext()

    def _opened(self, first: int, values: Sequence[Tensor], context: Tensor | None) -> tuple[Any, ...]:
        """Cut a block of `draws` into steps.

        Returns its columns; for each hidden layer what it reads, how many units each column completes, and their
        weights, pre-activations and values; what the logits read, with which weights; and what they begin with.
        """
        complete = self._complete_in(first)
        begun = self._begun(
            first, [value[: counts[0]] for value, counts in zip(values, complete, strict=False)], context
        )
        recent = [value[counts[0] : counts[-1]] for value, counts in zip(values, complete, strict=False)]
        *hidden, output = self._block(first)
        layers = []
        for index, rows in enumerate(hidden, start=1):
            sizes = {j: stop - start for j, (start, stop) in enumerate(pairwise(complete[index])) if start < stop}
            ((source, weight),) = rows.items()
            parts = (begun[index - 1], weight[:, complete[source][0] : complete[source][-1]], recent[index])
            cut = (dict(zip(sizes, part.split(list(sizes.values())), strict=True)) for part in parts)
            layers.append((recent[source], *cut))
        readings = [
            (recent[source].t(), weight[:, complete[source][0] : complete[source][-1]].unbind(0))
            for source, weight in output.items()
        ]
        return recent[0].unbind(0), layers, readings, begun[-1].unbind(0)

    def _begun(self, first: int, done: Sequence[Tensor], context: Tensor | None) -> tuple[Tensor, ...]:
        """Contributions of earlier blocks and the context to the block that begins with column `first`: (rows, B) for
        each layer, from (units, B).
        """
        begun = []
        for index, (layer, weights) in enumerate(zip(self.layers, self._block(first), strict=True), start=1):
            activation = self._units(layer.bias, index, first).unsqueeze(1)
            if layer.context_weight is not None:
                assert context is not None
                read = self._project(context, self._units(layer.context_weight, index, first))
                activation = read.t() + activation
            for source, weight in weights.items():
                count = len(done[source])
                activation = torch.addmm(activation, weight[:, :count], done[source])
            begun.append(activation)
        return tuple(begun)

    def _block(self, first: int) -> list[dict[int, Tensor]]:
        """Return, for each layer, the sorted weights of the units that complete in the block."""
        if first not in self.blocks:
            self.blocks[first] = [
                {
                    source: self._sorted(self._units(weight, index, first), 1, source, 0, weight.shape[1])
                    for source, weight in layer.weights.items()
                }
                for index, layer in enumerate(self.layers, start=1)
            ]
        return self.blocks[first]

    def _units(self, rows: Tensor, index: int, first: int) -> Tensor:
        """Return the rows of a layer for the units that complete in the block that begins with column `first`."""
        complete = self.complete[index]
        last = min(first + BLOCK, self.size) - 1
        return self._sorted(rows, 0, index, complete[first - 1] if first else 0, complete[last])

    def _sorted(self, weight: Tensor, dim: int, index: int, start: int, stop: int) -> Tensor:
        """Return the sorted units from `start` to `stop`: a view where they are sorted already."""
        if self.in_order[index]:
            return weight.narrow(dim, start, stop - start)
        return weight.index_select(dim, self.sorted[index][start:stop])
