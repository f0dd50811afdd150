"""Text drawn from a model, as it comes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.base import AutoregressiveModel
    from chainrule.data.vocabulary import Ids, Vocabulary

_WINDOW = 8  # symbols decoded again with each new one: enough for a space between words and for a character of 4 bytes


class Sampler:
    """How a text is drawn: the model, its vocabulary and the filters.

    Args:
        model: any model over the symbols of the vocabulary.
        vocabulary: what turns symbols into text.
        eos: the symbol that ends a text; None where texts go on.
        temperature, top_k, top_p: as in `AutoregressiveModel.sample`.
        draw: what draws whole texts, called as `model.sample` is; that if None.
    """

    def __init__(
        self,
        model: "AutoregressiveModel",
        vocabulary: "Vocabulary",
        *,
        eos: int | None = None,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        draw: "Callable[..., Tensor] | None" = None,
    ):
        self.draw = model.sample if draw is None else draw
        self.model, self.vocabulary, self.eos = model, vocabulary, eos
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        self.device = next(model.parameters()).device

    def stream(self, prompt: "Ids", length: int, seed: int) -> Iterator[str]:
        """One text of at most `length` symbols after the prompt, in pieces as they are drawn, the prompt left out."""
        with one_thread(self.device):
            yield from self._decoded(prompt, self._symbols(prompt, length, seed))

    def texts(self, n: int, prompt: "Ids", length: int, seed: int) -> list[tuple[str, int]]:
        """n texts drawn side by side, each with the number of symbols drawn, the one that ended it counted."""
        with one_thread(self.device) if n == 1 else nullcontext():
            drawn = self.draw(
                n,
                length=len(prompt) + length,
                prefix=torch.from_numpy(prompt) if len(prompt) else None,
                temperature=self.temperature,
                top_k=self.top_k,
                top_p=self.top_p,
                eos=self.eos,
                generator=self._generator(seed),
            )
        texts = []
        for row in drawn[:, len(prompt) :].tolist():
            ended = self.eos is not None and self.eos in row
            symbols = row[: row.index(self.eos)] if ended else row
            texts.append(("".join(self._decoded(prompt, iter(symbols))), len(symbols) + ended))
        return texts

    def _symbols(self, prompt: "Ids", length: int, seed: int) -> Iterator[int]:
        stream = self.model.stream(
            1,
            prefix=torch.from_numpy(prompt) if len(prompt) else None,
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            generator=self._generator(seed),
        )
        for drawn in islice(stream, length):
            symbol = int(drawn)
            if symbol == self.eos:
                return
            yield symbol

    def _decoded(self, prompt: "Ids", symbols: Iterator[int]) -> Iterator[str]:
        window = prompt[-_WINDOW:].tolist()
        shown = self.vocabulary.decode(window)
        held = 0
        for symbol in symbols:
            window.append(symbol)
            text = self.vocabulary.decode(window)
            if self.vocabulary.unknown is None and text.endswith("\N{REPLACEMENT CHARACTER}") and held < 3:
                held += 1  # maybe the first bytes of a character whose last byte is still to come
                continue
            yield text[len(shown) :]
            held, window = 0, window[-_WINDOW:]
            shown = self.vocabulary.decode(window)
        if held:
            yield self.vocabulary.decode(window)[len(shown) :]

    def _generator(self, seed: int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(seed)


@contextmanager
def one_thread(device: torch.device) -> Iterator[None]:
    """Compute with one thread: for one row at a time, handing work to others costs more than the work."""
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
