"""The distribution of one symbol that a table gives for its context, looked up when it is asked for."""

from typing import Any, Protocol

import torch
from torch import Tensor, distributions

from chainrule.heads._categorical import Categorical, check_symbols
from chainrule.heads._head import broadcast_shapes


class SymbolTable(Protocol):
    """Probabilities of V symbols after contexts, as `chainrule.layers.KneserNey` has them."""

    vocab_size: int

    def log_prob(self, contexts: Tensor, x: Tensor) -> Tensor:
        """log p of a symbol (...) after each context (..., C), nats."""

    def probs(self, contexts: Tensor) -> Tensor:
        """p of every symbol after each context (..., C), (..., V)."""


class LookedUpCategorical(Categorical):
    """A categorical distribution over V symbols that a table holds: it takes no gradient.

    `log_prob` looks up the symbols of a value alone; `logits` and `probs` make the table of all symbols.

    Args:
        contexts: (..., C), as the table takes them.
        table: of the probabilities.
    """

    def __init__(self, contexts: Tensor, table: SymbolTable):
        self._contexts, self._table = contexts, table
        self._num_events = table.vocab_size
        distributions.Distribution.__init__(self, contexts.shape[:-1], validate_args=False)

    @property
    def _param(self) -> Tensor:  # type: ignore[override]  # a table that is made when it is asked for
        return self.logits

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        return (self._contexts,)

    @property
    def settings(self) -> tuple[Any, ...]:
        return (self._table,)

    def categorical(self) -> Categorical:
        return Categorical(self.logits)

    @property
    def logits(self) -> Tensor:
        """Normalised log-probabilities of all symbols, (..., V), nats."""
        return self.probs.log()

    @property
    def probs(self) -> Tensor:
        return self._table.probs(self._contexts)

    def log_prob(self, value: Tensor) -> Tensor:
        """log p(value), nats; value (...) of integers in [0, V), broadcast against the batch shape.

        Raises:
            ValueError: on a processor, a value outside [0, V).
        """
        if value.device.type == "cpu":
            check_symbols(value, self._num_events)
        shape = broadcast_shapes(value.shape, self._batch_shape)
        contexts = self._contexts.expand(*shape, self._contexts.shape[-1])
        return self._table.log_prob(contexts, value.expand(shape).long())

    def sample(self, sample_shape: Any = (), *, generator: torch.Generator | None = None) -> Tensor:
        return self.categorical().sample(sample_shape, generator=generator)

    def __repr__(self) -> str:
        return f"LookedUpCategorical(batch_shape={tuple(self._batch_shape)}, V={self._num_events})"
