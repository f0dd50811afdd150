"""Draw texts from a trained model, and embed the lines of a text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from chainrule._app.heavy import torch
from chainrule._app.results import Column, Result
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.display import counted

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.text.sampler import Sampler
    from chainrule._app.tasks.text.task import TextTask
    from chainrule._base import AutoregressiveModel
    from chainrule.data import Vocabulary
    from chainrule.data._vocabulary import Beginning, Ids

    Line = tuple[int, str, Ids]


@dataclass(frozen=True)
class TextSampling(CheckedOptions):
    """Draw texts from a trained model.

    Args:
        n: Number of texts.
        out: File to write; standard output by default.
        json: Print one JSON object per text, with "prompt", "text" (including the prompt) and "elements" (the symbols
            drawn); then the seed, on standard error.
    """

    prompt: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    """Beginning of each text."""
    length: int = within(500, 1, 1 << 30)
    """Maximum symbols to draw after the prompt; a model of lines stops at the end of the line."""
    temperature: float = 1.0
    """Sampling temperature: 1 is the model's distribution, lower values are less varied, 0 is greedy."""
    top_k: int | None = within(None, 1, 1 << 30)
    """Draw only from the k most probable symbols."""
    top_p: float | None = None
    """Draw only from the most probable symbols that together reach this probability."""


def sample_text(run: "TextTask", n: int, options: TextSampling, *, seed: int, device: str) -> Result:
    if run.has_code:
        from chainrule._app.tasks.text.codes import sample_sentences

        return sample_sentences(run, n, options, seed=seed, device=device)
    prompted = _prompted(run, options, device)

    def rows() -> Iterator[Sequence[Any]]:
        for text, elements in prompted.sampler.texts(n, prompted.beginning, options.length, seed):
            yield prompted.prompt, prompted.prompt + text, elements

    return texts_result(rows(), seed, prompted.notice)


def texts_result(
    rows: Iterator[Sequence[Any]], seed: int, notice: str = "", *, form: Literal["texts", "lines"] = "texts"
) -> Result:
    """Build the result of sampling: prompt, text including it, and number of symbols drawn."""
    columns = [Column("prompt", shown=False), Column("text"), Column("elements", shown=False)]
    notes = (notice,) if notice else ()
    return Result(columns, rows, about={"seed": seed}, notes=lambda: notes, main="text", form=form)


def text_pieces(run: "TextTask", options: TextSampling, *, seed: int, device: str) -> Result | None:
    """Draw one text in pieces, the prompt first; None if a whole line is drawn at once."""
    if run.has_code:
        return None
    prompted = _prompted(run, options, device)

    def rows() -> Iterator[Sequence[Any]]:
        yield (prompted.prompt,)
        yield from ((piece,) for piece in prompted.sampler.stream(prompted.beginning, options.length, seed))

    notes = (prompted.notice,) if prompted.notice else ()
    return Result([Column("text")], rows(), about={"seed": seed}, notes=lambda: notes)


@dataclass(frozen=True)
class _Prompted:
    """Sampler, the prompt as shown and as the model reads it, and a notice about the difference."""

    sampler: "Sampler"
    prompt: str
    beginning: "Beginning"
    notice: str


def _prompted(run: "TextTask", options: TextSampling, device: str) -> _Prompted:
    from chainrule._app.tasks.text.sampler import Sampler
    from chainrule.heads._categorical import check_filters

    filters: dict[str, Any] = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
    check_filters(**filters)
    vocabulary, model = run.vocabulary, run.model(device)
    beginning, prompt = begin_prompt(vocabulary, options.prompt)
    beginning, notice = fitting_prompt(model, beginning, options.length)
    ends = vocabulary.eos if run.data.reading == "lines" else None
    sampler = Sampler(model, vocabulary, eos=ends, **filters)
    return _Prompted(sampler, prompt, beginning, notice)


def begin_prompt(vocabulary: "Vocabulary", prompt: str) -> "tuple[Beginning, str]":
    """Return a prompt as symbols with the ways to complete the last one, and as text; unknown symbols are refused."""
    prompt = prompt.removeprefix("\ufeff")
    beginning = vocabulary.begin(prompt)
    beginning = beginning._replace(ids=encode_prompt(vocabulary, prompt.removesuffix(beginning.rest)))
    return beginning, prompt.rstrip(" ") if vocabulary.level == "word" else prompt  # the next word brings its blank


def fitting_prompt(model: "AutoregressiveModel", prompt: "Beginning", length: int) -> "tuple[Beginning, str]":
    """Return the last part of a prompt that a model can read, and a notice if it is cut."""
    inside = max(map(len, prompt.covers), default=1) - 1  # symbols of the last word
    size, read = model.useful_prefix(length + inside), len(prompt.ids)
    if size is None or read <= size:
        return prompt, ""
    notice = f"--prompt: the model reads only the last {size:,} of {counted(read, 'symbol')}"
    return prompt._replace(ids=prompt.ids[-size:]), notice


def encode_prompt(vocabulary: "Vocabulary", prompt: str) -> "Ids":
    from chainrule.data import WordVocabulary

    ids = vocabulary.encode(prompt)
    if vocabulary.unknown is None or vocabulary.unknown not in ids:
        return ids
    if isinstance(vocabulary, WordVocabulary):
        words = [word for word in vocabulary.split(prompt) if word != "<unk>"]
        unseen = [repr(vocabulary.join([word])) for word in dict.fromkeys(words) if word not in vocabulary.words]
        kind, remedy = "word", "; write <unk> for a word not in the list"
    else:
        unseen = [repr(part) for part in dict.fromkeys(prompt) if vocabulary.unknown in vocabulary.encode(part)]
        kind, remedy = "character", ""
    if not unseen:
        return ids
    raise ValueError(
        f"--prompt: the model never saw the {kind}{'s' if len(unseen) > 1 else ''} {', '.join(unseen)}: "
        f"leave {'them' if len(unseen) > 1 else 'it'} out, or train on text that contains "
        f"{'them' if len(unseen) > 1 else 'it'} (--level byte knows every character){remedy}"
    )


_LONGEST = 1 << 16  # symbols of a line, and of the lines that are read together


@dataclass(frozen=True)
class TextEmbedding:
    """Embed the lines of a text: print the number of each, and the features that predict its next symbol.

    A recurrent model gives the state of its top layer after the line, a Transformer the features of its last block, a
    model with a code the mean of its posterior. Features of averaged models are concatenated. Every line is read from
    the initial state.

    Args:
        data: The text, - for standard input.
    """


def embed_lines(run: "TextTask", data: str | Sequence[str], options: TextEmbedding, *, device: str) -> Result:
    model: Any = run.model(device)
    if not run.has_code and not hasattr(model, "features"):
        raise ValueError(f"embed: a {run.config.model} has neither features nor a code")
    model_device = next(model.parameters()).device

    def rows() -> Iterator[Sequence[Any]]:
        for lines, x, lengths in batched_lines(run, data, ends=run.has_code):
            with torch.no_grad():
                if run.has_code:
                    h = model.codes(x.to(model_device), lengths=lengths.to(model_device))
                else:  # the features at an element are of those before it: at one past the end, of the whole line
                    h = model.features(torch.nn.functional.pad(x, (0, 1)).to(model_device))
                    h = h[torch.arange(len(lines)), lengths.to(model_device)]
            for (line, _, _), numbers in zip(lines, h.float().cpu().numpy(), strict=True):
                yield str(line) if isinstance(data, str) else data[line - 1], numbers

    return Result([Column("input"), Column("code", heading="z")], rows(), main="code", form="csv")


def batched_lines(
    run: "TextTask", data: str | Sequence[str], *, ends: bool
) -> "Iterator[tuple[list[Line], Tensor, Tensor]]":
    """Yield lines with numbers and symbols, as padded batches (B, T) with lengths (B,)."""
    from chainrule._app.tasks.text.scoring import read_pieces, whole_lines
    from chainrule.data._batches import SMALL_BATCH, padded

    def batch(rows: "list[Line]") -> "tuple[list[Line], Tensor, Tensor]":
        lengths = torch.tensor([len(ids) for _, _, ids in rows])
        return rows, padded([ids for _, _, ids in rows], int(lengths.max())), lengths

    rows: list[Line] = []
    longest = held = 0
    strict = run.data.level != "byte"
    for line, text in _texts(run, data) if not isinstance(data, str) else whole_lines(read_pieces(data, strict=strict)):
        ids = run.vocabulary.encode(text if ends else text.removesuffix("\n"))
        if len(ids) > _LONGEST:
            raise ValueError(f"line {line}: expected at most {_LONGEST:,} symbols, got {len(ids):,}: divide the line")
        size = (len(rows) + 1) * max(longest, len(ids))
        if rows and (size > _LONGEST or size > max(2 * (held + len(ids)), SMALL_BATCH)):
            yield batch(rows)
            rows, longest, held = [], 0, 0
        rows.append((line, text, ids))
        longest, held = max(longest, len(ids)), held + len(ids)
    if not rows:
        raise ValueError(f"{data if isinstance(data, str) else 'data'}: expected at least one input, got none")
    yield batch(rows)


def _texts(run: "TextTask", texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Number texts and add line ends."""
    for number, text in enumerate(texts, 1):
        if run.data.reading == "stream":
            yield number, f"{text}\n"
        elif "\n" in text.removesuffix("\n"):
            raise ValueError(f"data: text {number}: expected a single line, as the run was trained on, got several")
        else:
            yield number, text.removesuffix("\n") + "\n"
