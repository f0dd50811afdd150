"""Texts drawn from a trained model, whole or in pieces as they come."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from chainrule._app.results import Column, Result
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.display import counted

if TYPE_CHECKING:
    import torch

    from chainrule._app.tasks.text.task import TextTask
    from chainrule._base import AutoregressiveModel
    from chainrule.data import Vocabulary
    from chainrule.data._vocabulary import Ids


@dataclass(frozen=True)
class TextSampling(CheckedOptions):
    """Draw texts from a trained model.

    Args:
        n: How many texts.
        out: A file to write; standard output if not given.
        json: Print one JSON object a text, with "prompt", "text", which begins with it, and "elements", the symbols
            drawn; then the seed, on standard error.
    """

    prompt: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    """Beginning of each text."""
    length: int = within(500, 1, 1 << 30)
    """Symbols to draw after the prompt; a model of lines may end earlier, at the end of its line."""
    temperature: float = 1.0
    """1 is the model's own distribution; below it draws are likelier and less varied, 0 takes the likeliest symbol."""
    top_k: int | None = within(None, 1, 1 << 30)
    """Draw from the k likeliest symbols only."""
    top_p: float | None = None
    """Draw from the likeliest symbols that together reach this probability."""


def sample_text(run: "TextTask", n: int, options: TextSampling, *, seed: int, device: str) -> Result:
    """Draw n texts, side by side."""
    if run.has_code:
        from chainrule._app.tasks.text.codes import sample_sentences

        return sample_sentences(run, n, options, seed=seed, device=device)
    asked = _prompted(run, options, device)

    def rows() -> Iterator[Sequence[Any]]:
        for text, elements in asked.sampler.texts(n, asked.ids, options.length, seed):
            yield asked.prompt, asked.prompt + text, elements

    return texts_result(rows(), seed, asked.notice)


def texts_result(
    rows: Iterator[Sequence[Any]], seed: int, notice: str = "", *, form: Literal["texts", "lines"] = "texts"
) -> Result:
    """The result of drawing texts: the prompt of each, the text with it, and the number of symbols drawn."""
    columns = [Column("prompt", shown=False), Column("text"), Column("elements", shown=False)]
    notes = (notice,) if notice else ()
    return Result(columns, rows, about={"seed": seed}, notes=lambda: notes, main="text", form=form)


def text_pieces(run: "TextTask", options: TextSampling, *, seed: int, device: str) -> Result | None:
    """Draw one text in pieces, the prompt first; None where a whole line is drawn at once."""
    if run.has_code:
        return None
    asked = _prompted(run, options, device)

    def rows() -> Iterator[Sequence[Any]]:
        yield (asked.prompt,)
        yield from ((piece,) for piece in asked.sampler.stream(asked.ids, options.length, seed))

    notes = (asked.notice,) if asked.notice else ()
    return Result([Column("text")], rows(), about={"seed": seed}, notes=lambda: notes)


@dataclass(frozen=True)
class _Prompted:
    """A sampler, the prompt as it is shown, its symbols that the model reads, and a notice about the others."""

    sampler: "Sampler"
    prompt: str
    ids: "Ids"
    notice: str


def _prompted(run: "TextTask", options: TextSampling, device: str) -> _Prompted:
    from chainrule.heads._categorical import check_filters

    check_filters(options.temperature, options.top_k, options.top_p)
    vocabulary, prompt = run.vocabulary, without_last_blank(run.vocabulary, options.prompt)
    model, ids = run.model(device), encode_prompt(vocabulary, prompt)
    ids, notice = fitting_prompt(model, ids, options.length)
    sampler = Sampler(
        model,
        vocabulary,
        eos=vocabulary.eos if run.data.reading == "lines" else None,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
    )
    return _Prompted(sampler, prompt, ids, notice)


def without_last_blank(vocabulary: "Vocabulary", prompt: str) -> str:
    """A prompt without a byte order mark and, where symbols begin with the blank before a word, without last blanks."""
    prompt = prompt.removeprefix("\ufeff")
    return prompt.rstrip(" ") if vocabulary.cuts_at_spaces else prompt


def fitting_prompt(model: "AutoregressiveModel", ids: "Ids", length: int) -> "tuple[Ids, str]":
    """The last part of a prompt that matters to a model, and a line that says so; empty where all of it does.

    What lies beyond a Transformer's reach changes nothing of what it draws.

    Args:
        model: any.
        ids: the prompt.
        length: symbols to draw after it.

    Raises:
        ValueError: the positions that the model has learned end before so many symbols.
    """
    kept = model.useful_prefix(length)
    if kept is None or len(ids) <= kept:
        return ids, ""
    return ids[
        -kept:
    ], f"--prompt: {counted(len(ids), 'symbol')}, of which the model can read the last {kept:,}: these are kept"


def encode_prompt(vocabulary: "Vocabulary", prompt: str) -> "Ids":
    """The symbols of a prompt.

    Raises:
        ValueError: a part of it was never seen in training.
    """
    from chainrule.data._characters import split_words

    ids = vocabulary.encode(prompt)
    if vocabulary.unknown is None or vocabulary.unknown not in ids:
        return ids
    if vocabulary.level == "word":
        parts, remedy = (
            [word for word in split_words(prompt) if word != "<unk>"],
            "; write <unk> for a word not in the list",
        )
    else:
        parts, remedy = list(dict.fromkeys(prompt)), ""
    unseen = [repr(part) for part in dict.fromkeys(parts) if vocabulary.unknown in vocabulary.encode(part)]
    if not unseen:
        return ids
    kind = "word" if vocabulary.level == "word" else "character"
    raise ValueError(
        f"--prompt: the model never saw the {kind}{'s' if len(unseen) > 1 else ''} {', '.join(unseen)}: "
        f"leave {'them' if len(unseen) > 1 else 'it'} out, or train on text that has "
        f"{'them' if len(unseen) > 1 else 'it'} (--level byte knows every character){remedy}"
    )


_WINDOW = 8  # symbols decoded again with each new one: enough for a space between words and for a character of 4 bytes


class Sampler:
    """How a text is drawn: the model, its vocabulary and the filters.

    Args:
        model: any model over the symbols of the vocabulary.
        vocabulary: of the model's symbols.
        eos: the symbol that ends a text; None where texts go on.
        temperature, top_k, top_p: as in `AutoregressiveModel.sample`.
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
    ):
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
            drawn = self.model.sample(
                n,
                length=len(prompt) + length,
                prefix=_prefix(prompt),
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
            prefix=_prefix(prompt),
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

    def _generator(self, seed: int) -> "torch.Generator":
        import torch

        return torch.Generator(self.device).manual_seed(seed)


def _prefix(prompt: "Ids") -> "torch.Tensor | None":
    import torch

    return torch.from_numpy(prompt) if len(prompt) else None


@contextmanager
def one_thread(device: "torch.device") -> Iterator[None]:
    """Compute with one thread: for one row at a time, handing work to others costs more than the work."""
    import torch

    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
