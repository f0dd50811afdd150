"""Any module that maps symbols to logits, as a model of sequences."""

import inspect
from typing import final

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel, Context
from chainrule._checks import fill_padding, length_mask, refuse_context
from chainrule.heads import Categorical
from chainrule.layers._cells import check_vocabulary, symbols_of
from chainrule.models._module_call import CacheStep, ModuleCall
from chainrule.state import State


def from_logits(
    module: nn.Module,
    *,
    start: int | None = None,
    shifted: bool = True,
    window: int | None = None,
    length: int | None = None,
    cache: bool = True,
    step: CacheStep | None = None,
) -> "LogitsModel":
    r"""Adapt a module that maps symbols (B, T) to logits (B, T, V), such as a GPT written elsewhere.

    .. math:: p(x_{t+1} \mid x_{\le t}) = \operatorname{softmax}(\mathrm{logits}_t)

    The result has likelihoods, sampling, beam search and every other method of an `AutoregressiveModel`, and the
    module's weights: training one trains the other. The module may return a tensor, a tuple that begins with the
    logits, or an object with `.logits`, as Hugging Face's causal language models do.

    If the module has a cache, it is used: `forward` takes it as `past_key_values`, `cache`, `hidden`, `state` or the
    like, and returns it with the logits, under the same name or as the second item of a tuple. Without a cache, each
    step reads everything again. `lengths` are passed on as `attention_mask` and `position_ids`, `key_padding_mask` or
    `lengths` if `forward` takes these.

    Args:
        module: the module. It is called on a few symbols 0 to see what it returns.
        start: a symbol that precedes every sequence (BOS); the module reads it, and it is not part of x. Without it,
            the first symbol, which the module does not score, is uniform: `log_prob(x)` is log p(x_2, x_3, ... | x_1) -
            log V.
        shifted: whether logits[:, t] predict x[:, t + 1], as in a GPT; or x[:, t], in a module that shifts its input
            itself. The latter is used without a cache.
        window: how many symbols back the module can see, if it cannot see all; see `AutoregressiveModel.visible_past`.
        length: the number of symbols of every call, if the module takes no other; shorter inputs are padded on the
            right.
        cache: False ignores the module's cache.
        step: reads one more symbol: a method of the module, called with symbols (B, 1) and the last cache, `None` at
            first; or a function that takes the module before these. It returns logits, (B, 1, V) or (B, V), and a
            cache: tensors, tuples, lists, dicts and objects with attributes.

    Raises:
        ValueError: arguments do not fit together, or the module returns no such logits.

    >>> module = nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 5))  # a bigram model
    >>> model = from_logits(module, start=0, window=1)
    >>> x = torch.tensor([[1, 2, 3]])
    >>> by_hand = module(torch.tensor([[0, 1, 2]])).log_softmax(-1)[0, [0, 1, 2], x[0]].sum()
    >>> torch.allclose(model.log_prob(x)[0], by_hand)
    True
    >>> model.sample(2, length=7, generator=torch.Generator().manual_seed(0)).shape
    torch.Size([2, 7])
    """
    if not shifted and (start is not None or step is not None):
        named = "start" if start is not None else "step"
        raise ValueError(f"{named}: expected None with shifted=False, where the module shifts its input itself")
    call = ModuleCall.of(module, length, cache=cache and shifted, step=_unbound(module, step))
    if start is not None and not 0 <= start < call.vocab_size:
        raise ValueError(f"start: expected a symbol in [0, {call.vocab_size}), got {start}")
    if window is not None and window < 0:
        raise ValueError(f"window: expected at least 0 symbols, or None for all, got {window}")
    return LogitsModel(module, call, start=start, shifted=shifted, window=window)


@final
class LogitsModel(AutoregressiveModel):
    """Model that `from_logits` builds from a module.

    The state of a module with a cache is that cache, batch first; of one without, the symbols before.

    Args:
        module: maps symbols to logits.
        call: how it is called.
        start, shifted, window: see `from_logits`.
    """

    def __init__(self, module: nn.Module, call: ModuleCall, *, start: int | None, shifted: bool, window: int | None):
        super().__init__()
        self.module, self.call = module, call
        self.start, self.shifted, self.window = start, shifted, window

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.call.vocab_size

    def forward(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Categorical:
        refuse_context(context)
        x = symbols_of(x)
        if x.dim() != 2:
            raise ValueError(f"x: expected symbols (B, T), got shape {tuple(x.shape)}")
        if lengths is None:
            return Categorical(self._logits(check_vocabulary(x, self.vocab_size)))
        real = length_mask(lengths, x.shape[1]).to(x.device)
        return Categorical(self._logits(check_vocabulary(fill_padding(x, real), self.vocab_size), real))

    def initial_state(self, batch_size: int, context: Context = None) -> State:
        """Return the empty past, (B, 0) symbols, with an empty cache for a module that has one."""
        refuse_context(context)
        device = next(self.parameters(), torch.empty(0)).device
        before = torch.zeros(batch_size, 0, dtype=torch.long, device=device)
        return (before, None) if self.call.has_cache else before

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        before = state[0] if self.call.has_cache else state
        logits, state = self._continued(before.new_zeros(len(before), 1), state, x_prev)  # the 0 is not read
        return Categorical(logits[:, 0]), state

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Categorical, State]:
        logits, state = self._continued(check_vocabulary(symbols_of(x), self.vocab_size), state, x_prev)
        return Categorical(logits), state

    def visible_past(self, length: int) -> Tensor:
        """Return all, or the last `window` symbols."""
        return super().visible_past(length).triu(-length if self.window is None else -self.window)

    def _logits(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """(B, T, V) logits of x in one pass; real: (B, T) what is not padding."""
        symbols = x
        if self.shifted:
            start = self._start(x)
            symbols = torch.cat([start, x[:, :-1]], 1)[:, : x.shape[1]]  # T may be 0
            real = None if real is None else torch.cat([torch.ones_like(start, dtype=torch.bool), real[:, :-1]], 1)
        if real is not None and real.shape[1]:
            real[:, 0] = True  # attention over nothing is NaN
        logits = self.call.logits(self.module, symbols, real) if symbols.shape[1] else None
        return self._completed(logits, x)

    def _continued(self, x: Tensor, state: State, x_prev: Tensor | None) -> tuple[Tensor, State]:
        """(B, T, V) logits of a chunk, and the state after it; see `unroll`."""
        before = x[:, :0]
        if x_prev is not None:
            before = check_vocabulary(symbols_of(x_prev), self.vocab_size, "x_prev").unsqueeze(1)
        if not self.call.has_cache:
            whole = torch.cat([state, before, x], 1)
            return self._logits(whole)[:, -x.shape[1] :], whole[:, :-1]
        symbols = torch.cat([self._start(x) if x_prev is None else before, x[:, :-1]], 1)
        if not symbols.shape[1]:
            return self._completed(None, x), state
        logits, cache = self.call.read(self.module, symbols, state[1])
        return self._completed(logits, x), (state[0], cache)

    def _start(self, x: Tensor) -> Tensor:
        """(B, 1) start symbols; (B, 0) without one."""
        return x[:, :0] if self.start is None else x.new_full((len(x), 1), self.start)

    def _completed(self, logits: Tensor | None, x: Tensor) -> Tensor:
        """Return the logits of all of x (B, T), uniform for the first symbol where the module does not score it."""
        if logits is None:
            return torch.zeros(*x.shape, self.vocab_size, device=x.device)
        first = logits.new_zeros(len(x), x.shape[1] - logits.shape[1], self.vocab_size)
        return torch.cat([first, logits], 1) if first.shape[1] else logits


def _unbound(module: nn.Module, step: CacheStep | None) -> CacheStep | None:
    """Return a function of (module, symbols, cache): copying a model copies the module, but no closure."""
    if step is None:
        return None
    if inspect.ismethod(step) and step.__self__ is module:
        return step.__func__
    takes = len(inspect.signature(step).parameters)
    if takes != 3:
        raise ValueError(
            f"step: expected a method of the module, or a function (module, symbols, cache), got {takes} arguments"
        )
    return step
