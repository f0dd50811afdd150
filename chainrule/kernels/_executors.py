"""Models of symbols prepared for many steps with the same weights: layouts and look-ups made once, compiled loops."""

from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from chainrule._base import Executor
from chainrule.heads import Categorical
from chainrule.kernels._compiled import compiled_loops
from chainrule.kernels._plain_modules import may_prepare
from chainrule.layers._cells import symbols_of
from chainrule.layers._recurrent import Recurrent
from chainrule.layers._recurrent_stack import GRU, RNN
from chainrule.state import State, count_rows

if TYPE_CHECKING:
    from chainrule.kernels._compiled_loops import Recurrence, Scores
    from chainrule.models._model_mean import ModelMean
    from chainrule.models._ngram_lm import NgramLM
    from chainrule.models._recurrent_lm import RecurrentLM
    from chainrule.models._wavenet import WaveNet

LOOK_UP_LIMIT = 2**25  # elements of a table W_ih E + b that a prepared step may hold: 128 MiB in float32


class RecurrentExecutor(Executor):
    """A recurrent language model whose projections W_ih E + b are looked up, if the table is not too large."""

    model: "RecurrentLM"

    def __init__(self, model: "RecurrentLM"):
        super().__init__(model)
        self._plain = not model.training and may_prepare(model)
        single = model.reads_single_vectors
        if not self._plain or (single and not self._is_narrow):
            return
        with torch.no_grad():
            self._start = torch.full((1,), model.vocab_size, device=model.recurrent.weight_hh_l0.device)
            vectors = model.vectors(torch.arange(model.vocab_size + 1, device=self._start.device)) if single else None
            self._advance = model.recurrent.prepare(vectors)
            if model.adaptive is None:
                assert model.bias_ho is not None
                self._bias, self._weight = model.bias_ho, model.output_weight().t()
        self.step = self._prepared_step

    @property
    def _is_narrow(self) -> bool:
        return (self.model.vocab_size + 1) * len(self.model.recurrent.weight_ih_l0) <= LOOK_UP_LIMIT

    def _prepared_step(self, x_prev: Tensor | None, state: State) -> tuple[Any, State]:
        model = self.model
        recurrent, recent = model.parts(state)
        x_prev = self._start.expand(count_rows(recurrent)) if x_prev is None else symbols_of(x_prev)
        if model.ngrams is not None and recent is not None:
            ngrams, recent = model.ngrams.step(x_prev, recent)
            x_prev = model.vectors(x_prev) + ngrams
        h, recurrent = self._advance(x_prev, recurrent)
        if model.adaptive is not None:
            return model.adaptive(h), model.joined(recurrent, recent)
        return Categorical(torch.addmm(self._bias, h, self._weight)), model.joined(recurrent, recent)

    def compiled_scores(self, state: State) -> "Scores | None":
        model = self.model
        loops = compiled_loops(model.recurrent.weight_hh_l0)
        if loops is None or model.adaptive is not None or not self._plain:
            return None
        recurrent, recent = model.parts(state)
        cells, weight, bias = _compiled_cells(loops, model.recurrent, recurrent)
        if model.embedding is None:
            read = loops.looked_up(weight.t() + bias)
        elif model.ngrams is None and self._is_narrow:
            read = loops.looked_up(model.vectors(torch.arange(model.vocab_size + 1, device="cpu")) @ weight.t() + bias)
        else:
            past = None if model.ngrams is None or recent is None else (*model.ngrams.tables_apart(), recent[0])
            read = loops.embedded(model.embedding.weight, weight, bias, past)
        scores: Scores = loops.recurrent_scores(read, cells, model.output_weight(), model.bias_ho)
        return scores


def _compiled_cells(loops: ModuleType, layer: Recurrent, state: State) -> "tuple[Recurrence, Tensor, Tensor]":
    """Return the steps of one sequence from a state on in compiled loops, and W_ih and b of the lowest layer."""
    kind = layer.mode.lower()
    if isinstance(layer, RNN):
        kind = layer.nonlinearity
    elif isinstance(layer, GRU) and not layer.reset_after:
        kind = "gru-before"
    weight_ih, others = zip(*((weight, rest) for weight, *rest in layer.all_weights), strict=True)
    zeros = layer.weight_hh_l0.new_zeros(len(layer.weight_hh_l0))
    biases = [zeros if (bias := layer.input_bias(rest)) is None else bias for rest in others]
    gated = [layer.bias_hn(rest) if isinstance(layer, GRU) else zeros[: layer.hidden_size] for rest in others]
    parts = list(state) if layer.has_cell else [state]
    cells = loops.Recurrence(kind, [rest[0] for rest in others], list(weight_ih[1:]), biases[1:], gated, parts)
    return cells, weight_ih[0], biases[0]


class WaveNetExecutor(Executor):
    """A WaveNet whose inputs are looked up, and whose layers share their products."""

    model: "WaveNet"

    def __init__(self, model: "WaveNet"):
        super().__init__(model)
        self._plain = may_prepare(model)
        if not self._plain:
            return
        with torch.no_grad():
            self._start = torch.full((1,), model.levels, device=model.stack.residual.device)
            table = model.embedded(torch.arange(model.levels + 1, device=self._start.device))
            self._advance = model.stack.prepare(table, [model.skip, model.hidden, model.output])
        self.step = self._prepared_step

    def _prepared_step(self, x_prev: Tensor | None, state: State) -> tuple[Any, State]:
        symbols = self._start.expand(len(state["end"])) if x_prev is None else x_prev.long()
        scores, state = self._advance(symbols, state)
        return self.model.head(scores, symbols), state

    def compiled_scores(self, state: State) -> "Scores | None":
        model, stack = self.model, self.model.stack
        loops = compiled_loops(stack.residual)
        if loops is None or model.components is not None or not self._plain:
            return None
        layers = stack.convolutions
        bias = torch.stack([cast(Tensor, layer.bias) for layer in layers])
        scores: Scores = loops.dilated_scores(
            model.embedding.weight,
            [queue[0] for queue in stack.queues(state)],
            [layer.weight for layer in layers],
            bias if state["bias"] is None else bias + state["bias"][0],
            stack.residual,
            [(linear.weight, linear.bias) for linear in (model.skip, model.hidden, model.output)],
        )
        return scores


class NgramExecutor(Executor):
    """Counts, looked up by compiled loops."""

    model: "NgramLM"

    def compiled_scores(self, state: State) -> "Scores | None":
        ngrams = self.model.ngrams
        loops = compiled_loops(ngrams.terms)
        if loops is None:
            return None
        scores: Scores = loops.ngram_scores(state[0], ngrams.unigrams, ngrams.keys, ngrams.terms, ngrams.backoffs)
        return scores


class MeanExecutor(Executor):
    """The parts of a mean, each prepared."""

    model: "ModelMean"

    def __init__(self, model: "ModelMean"):
        super().__init__(model, self._together)
        self._parts = [part.prepare() for part in model.parts]

    def _together(self, x_prev: Tensor | None, state: State) -> tuple[Any, State]:
        return self.model.together(part.step(x_prev, own) for part, own in zip(self._parts, state, strict=True))

    def compiled_scores(self, state: State) -> "Scores | None":
        weights = self.model.log_weights
        loops = compiled_loops(torch.empty(0, device="cpu") if weights is None else weights)
        if loops is None or not may_prepare(self.model):
            return None
        scores = [part.compiled_scores(own) for part, own in zip(self._parts, state, strict=True)]
        if None in scores:
            return None
        shares = [1 / len(scores)] * len(scores) if weights is None else weights.exp().tolist()
        mean: Scores = loops.mean_scores(scores, shares)
        return mean
