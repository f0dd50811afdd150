"""Texts from a model, symbol by symbol, with a prompt that may end inside a symbol."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from chainrule._base import AutoregressiveModel
from chainrule._modes import device_of, in_evaluation
from chainrule.data import Vocabulary
from chainrule.data._vocabulary import Beginning, Ids
from chainrule.heads import Categorical
from chainrule.state import State, select

_WINDOW = 8  # symbols decoded again with each new one: enough for a space between words and for a character of 4 bytes
_LONGEST_WINDOW = 24  # symbols, before the window is cut to that size, which takes one more decoding


class Decoder:
    """Incremental decoder of symbols."""

    def __init__(self, vocabulary: Vocabulary, before: Ids | Sequence[int] = ()):
        self._vocabulary, self._window = vocabulary, list(map(int, before[-_WINDOW:]))
        self._shown, self._held = vocabulary.decode(self._window), 0

    def add(self, symbol: int) -> str:
        """Return the text that a symbol adds: empty while a character may be incomplete."""
        self._window.append(symbol)
        text = self._vocabulary.decode(self._window)
        if self._vocabulary.unknown is None and text.endswith("\N{REPLACEMENT CHARACTER}") and self._held < 3:
            self._held += 1
            return ""
        added, self._held, self._shown = text[len(self._shown) :], 0, text
        if len(self._window) > _LONGEST_WINDOW:
            self._window = self._window[-_WINDOW:]
            self._shown = self._vocabulary.decode(self._window)
        return added

    def rest(self) -> str:
        """Return the text held back at the end."""
        return self._vocabulary.decode(self._window)[len(self._shown) :] if self._held else ""


class Sampler:
    """Sampler of texts from a model, its vocabulary and filters: temperature, top_k and top_p."""

    def __init__(self, model: AutoregressiveModel, vocabulary: Vocabulary, *, eos: int | None = None, **filters: Any):
        self.model, self.vocabulary, self.eos, self.filters = model, vocabulary, eos, filters
        self.device = next(model.parameters()).device

    def stream(self, prompt: Beginning, length: int, seed: int) -> Iterator[str]:
        """Yield one text of at most `length` symbols after the prompt in pieces, without the prompt."""
        with one_thread(self.device):
            generator = self._generator(seed)
            (cover,) = self._draw_covers(1, prompt, generator)
            symbols = chain(cover, self._symbols(_joined(prompt.ids, cover), length - bool(cover), generator))
            yield from self._after(prompt, cover, symbols)

    def texts(self, n: int, prompt: Beginning, length: int, seed: int) -> list[tuple[str, int]]:
        """Draw n texts side by side; also return the symbols drawn for each, including an end."""
        generator, texts = self._generator(seed), dict[int, tuple[str, int]]()
        covers = self._draw_covers(n, prompt, generator)
        for size in sorted(set(map(len, covers))):  # rows of one length go on side by side
            rows = [row for row, cover in enumerate(covers) if len(cover) == size]
            prefix = torch.from_numpy(np.stack([_joined(prompt.ids, covers[row]) for row in rows]))
            with one_thread(self.device) if n == 1 else nullcontext():
                drawn = self.model.sample(
                    len(rows),
                    length=prefix.shape[1] + length - bool(size),
                    prefix=prefix if prefix.numel() else None,
                    eos=self.eos,
                    generator=generator,
                    **self.filters,
                )
            for row, symbols in zip(rows, drawn[:, prefix.shape[1] :].tolist(), strict=True):
                ended = self.eos is not None and self.eos in symbols
                symbols = symbols[: symbols.index(self.eos)] if ended else symbols
                pieces = self._after(prompt, covers[row], iter([*covers[row], *symbols]))
                texts[row] = "".join(pieces), len(symbols) + ended + bool(size)
        return [texts[row] for row in range(n)]

    def _draw_covers(self, n: int, prompt: Beginning, generator: torch.Generator) -> list[tuple[int, ...]]:
        """Draw the symbols that complete the last word of the prompt, for each of n texts."""
        if not prompt.covers:
            return [()] * n
        scores = cover_log_probs(self.model, prompt)
        chosen = Categorical(logits=scores).filtered(**self.filters)
        return [tuple(prompt.covers[index]) for index in chosen.sample((n,), generator=generator).tolist()]

    def _symbols(self, prompt: Ids, length: int, generator: torch.Generator) -> Iterator[int]:
        prefix = torch.from_numpy(prompt) if len(prompt) else None
        for drawn in self.model.stream(1, prefix=prefix, count=length, generator=generator, **self.filters):
            symbol = int(drawn)
            if symbol == self.eos:
                return
            yield symbol

    def _after(self, prompt: Beginning, cover: Sequence[int], symbols: Iterator[int]) -> Iterator[str]:
        """Yield the text without the last word of the prompt, with which it begins."""
        pieces = self._decoded(prompt.ids, symbols)
        if cover:
            text = ""
            while prompt.rest not in text:
                text += next(pieces)
            yield from filter(None, [text.partition(prompt.rest)[2]])
        yield from pieces

    def _decoded(self, prompt: Ids, symbols: Iterator[int]) -> Iterator[str]:
        decoder = Decoder(self.vocabulary, prompt)
        yield from filter(None, map(decoder.add, symbols))
        if rest := decoder.rest():
            yield rest

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed)


def _joined(ids: Ids, cover: Sequence[int]) -> Ids:
    return np.concatenate([ids, np.array(cover, dtype=np.int64)])


@in_evaluation
@torch.no_grad()
def cover_log_probs(
    model: AutoregressiveModel, prompt: Beginning, read: tuple[State, Tensor | None] | None = None
) -> Tensor:
    """Return log p(cover | ids) of each way to complete the prompt's last word, (C,), nats.

    `read` is the state and the last symbol (1,) after the ids; None reads them.
    """
    device = device_of(model)
    inner = sorted({tuple(cover[:-1]) for cover in prompt.covers})
    padded = torch.zeros(len(inner), max(map(len, inner)) + 1, dtype=torch.long)  # padded: nothing looks ahead
    for row, symbols in enumerate(inner):
        padded[row, : len(symbols)] = torch.tensor(symbols, dtype=torch.long)
    state, x_prev = read or (model.initial_state(1), None)
    if read is None and len(prompt.ids):
        ids = torch.from_numpy(prompt.ids).to(device)
        state, x_prev = model.unroll(ids[None], state)[1], ids[-1:]
    x_prev = None if x_prev is None else x_prev.expand(len(inner))
    state = select(state, torch.zeros(len(inner), dtype=torch.long, device=device))
    conditionals: Any = model.unroll(padded.to(device), state, x_prev)[0]
    log_p: Tensor = conditionals.logits.double().log_softmax(-1).cpu()  # (inner, 1 + longest, V)
    terms = log_p.gather(2, padded[..., None]).squeeze(2)
    before = pad(terms.cumsum(1)[:, :-1], (1, 0))
    rows = torch.tensor([inner.index(tuple(cover[:-1])) for cover in prompt.covers])
    places = torch.tensor([len(cover) - 1 for cover in prompt.covers])
    return before[rows, places] + log_p[rows, places, torch.tensor([cover[-1] for cover in prompt.covers])]


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Compute with one thread: for one row at a time, splitting the work costs more than it saves."""
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
