"""Texts drawn from a trained model, whole or in pieces as they come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from chainrule._app.results import Column, Result
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.display import counted

if TYPE_CHECKING:
    from chainrule._app.tasks.text._sampler import Sampler
    from chainrule._app.tasks.text.task import TextTask
    from chainrule._base import AutoregressiveModel
    from chainrule.data import Vocabulary
    from chainrule.data._vocabulary import Beginning, Ids


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
        for text, elements in asked.sampler.texts(n, asked.beginning, options.length, seed):
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
        yield from ((piece,) for piece in asked.sampler.stream(asked.beginning, options.length, seed))

    notes = (asked.notice,) if asked.notice else ()
    return Result([Column("text")], rows(), about={"seed": seed}, notes=lambda: notes)


@dataclass(frozen=True)
class _Prompted:
    """A sampler, the prompt as it is shown, what the model reads of it, and a notice about the rest."""

    sampler: "Sampler"
    prompt: str
    beginning: "Beginning"
    notice: str


def _prompted(run: "TextTask", options: TextSampling, device: str) -> _Prompted:
    from chainrule._app.tasks.text._sampler import Sampler
    from chainrule.heads._categorical import check_filters

    check_filters(options.temperature, options.top_k, options.top_p)
    vocabulary, model, whole = run.vocabulary, run.model(device), options.prompt.removeprefix("\ufeff")
    beginning = vocabulary.begin(whole)
    ids = encode_prompt(vocabulary, whole.removesuffix(beginning.rest))
    inside = max(map(len, beginning.covers), default=1) - 1  # symbols of the last word
    ids, notice = fitting_prompt(model, ids, options.length + inside)
    # The next word brings the blank before it.
    prompt = whole.rstrip(" ") if vocabulary.level == "word" else whole
    sampler = Sampler(
        model,
        vocabulary,
        eos=vocabulary.eos if run.data.reading == "lines" else None,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
    )
    return _Prompted(sampler, prompt, beginning._replace(ids=ids), notice)


def fitting_prompt(model: "AutoregressiveModel", ids: "Ids", length: int) -> "tuple[Ids, str]":
    """The last part of a prompt that matters to a model, and a line that says so; empty where all of it does."""
    kept = model.useful_prefix(length)
    if kept is None or len(ids) <= kept:
        return ids, ""
    return ids[
        -kept:
    ], f"--prompt: {counted(len(ids), 'symbol')}, of which the model can read the last {kept:,}: these are kept"


def encode_prompt(vocabulary: "Vocabulary", prompt: str) -> "Ids":
    """The symbols of a prompt."""
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
