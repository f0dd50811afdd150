"""Draw texts from a model, symbol by symbol, with a prompt that may end inside a symbol, and embed lines of a text."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from cyclopts import Parameter

from chainrule.option_error import OptionError, option
from chainrule.ranges import Range
from chainrule_app.batchwise import Answered, nothing
from chainrule_app.heavy import modes, np, torch
from chainrule_app.pages.result_figures import plane_figure
from chainrule_app.printing import counted, spelled
from chainrule_app.results import Column, Result
from chainrule_app.tasks.options import TemperatureOptions
from chainrule_app.tasks.text.copies import LineCopies

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule import AutoregressiveModel
    from chainrule.data import Beginning, Vocabulary
    from chainrule.state import State
    from chainrule_app.readers.store import Ids
    from chainrule_app.tasks.text.rows import Texts
    from chainrule_app.tasks.text.task import TextTask

    Line = tuple[int, str, Ids]


@dataclass(frozen=True)
class TextSampling(TemperatureOptions):
    """Draw texts from a trained model."""

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "n": "Number of texts.",
        "out": "File to write; standard output by default.",
        "json": (
            'Print one JSON object per text, with "prompt", "text" (including the prompt) and "elements" (the '
            "symbols drawn); then the seed, on standard error."
        ),
    }

    prompt: Annotated[str, Parameter(allow_leading_hyphen=True)] = ""
    """Beginning of each text."""
    length: Annotated[int, Range(1, 1 << 30)] = 500
    """Maximum symbols to draw after the prompt; a model of lines stops at the end of the line."""
    top_k: Annotated[int, Range(1, 1 << 30)] | None = None
    """Draw only from the k most probable symbols."""
    top_p: float | None = None
    """Draw only from the most probable symbols that together reach this probability."""


def sample_text(run: "TextTask", n: int, options: TextSampling, *, seed: int, device: str) -> Result:
    prompted = _prompted(run, options, device)

    def rows() -> Iterator[Sequence[Any]]:
        for text, elements in prompted.sampler.texts(n, prompted.beginning, options.length, seed):
            yield prompted.prompt, prompted.prompt + text, elements

    columns = [Column("prompt", shown=False), Column("text"), Column("elements", shown=False)]
    copies, notes = LineCopies(run), (prompted.notice,) if prompted.notice else ()
    return Result(
        columns,
        copies.counted(rows()),
        about={"seed": seed},
        summary=copies.figures,
        notes=lambda: notes,
        main="text",
        form="texts",
        hints={"one_line": run.data.reading == "lines"},
    )


def text_pieces(run: "TextTask", options: TextSampling, *, seed: int, device: str) -> Result:
    """Draw one text in pieces, the prompt first."""
    prompted = _prompted(run, options, device)

    copies = LineCopies(run)

    def rows() -> Iterator[Sequence[Any]]:
        pieces = [prompted.prompt]
        yield (prompted.prompt,)
        for piece in prompted.sampler.stream(prompted.beginning, options.length, seed):
            pieces.append(piece)
            yield (piece,)
        copies.add_text("".join(pieces))

    notes = (prompted.notice,) if prompted.notice else ()
    return Result([Column("text")], rows(), about={"seed": seed}, summary=copies.figures, notes=lambda: notes)


@dataclass(frozen=True)
class _Prompted:
    """Sampler, the prompt as shown and as the model reads it, and a notice about the difference."""

    sampler: "Sampler"
    prompt: str
    beginning: "Beginning"
    notice: str


def _prompted(run: "TextTask", options: TextSampling, device: str) -> _Prompted:
    from chainrule.heads import Categorical

    filters: dict[str, Any] = {"temperature": options.temperature, "top_k": options.top_k, "top_p": options.top_p}
    Categorical.check_filters(**filters)
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
    # the next word brings its blank
    return beginning, prompt.rstrip(" \t\r\v\f") if vocabulary.level == "word" else prompt


def fitting_prompt(model: "AutoregressiveModel", prompt: "Beginning", length: int) -> "tuple[Beginning, str]":
    """Return the last part of a prompt that a model can read, and a notice if it is cut."""
    inside = max(map(len, prompt.covers), default=1) - 1  # symbols of the last word
    size, read = model.useful_prefix(length + inside), len(prompt.ids)
    if size is None or read <= size:
        return prompt, ""
    notice = f"{spelled('prompt')}: the model reads only the last {size:,} of {counted(read, 'symbol')}"
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
    raise OptionError(
        "prompt",
        f"the model never saw the {kind}{'s' if len(unseen) > 1 else ''} {', '.join(unseen)}",
        f"leave {'them' if len(unseen) > 1 else 'it'} out, or train on text that contains "
        f"{'them' if len(unseen) > 1 else 'it'} ({option('level', 'byte')} knows every character){remedy}",
    )


_WINDOW = 8  # symbols decoded again with each new one: enough for a space between words and for a character of 4 bytes
_LONGEST_WINDOW = 24  # symbols, before the window is cut to that size, which takes one more decoding


class Decoder:
    """Incremental decoder of symbols."""

    def __init__(self, vocabulary: "Vocabulary", before: "Ids | Sequence[int]" = ()):
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

    def __init__(
        self, model: "AutoregressiveModel", vocabulary: "Vocabulary", *, eos: int | None = None, **filters: Any
    ):
        self.model, self.vocabulary, self.eos, self.filters = model, vocabulary, eos, filters
        self.device = modes.device_of(model)

    def stream(self, prompt: "Beginning", length: int, seed: int) -> Iterator[str]:
        """Yield one text of at most `length` symbols after the prompt in pieces, without the prompt."""
        with one_thread(self.device):
            generator = self._generator(seed)
            (cover,) = self._draw_covers(1, prompt, generator)
            symbols = chain(cover, self._symbols(_joined(prompt.ids, cover), length - bool(cover), generator))
            yield from self._after(prompt, cover, symbols)

    def texts(self, n: int, prompt: "Beginning", length: int, seed: int) -> list[tuple[str, int]]:
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

    def _draw_covers(self, n: int, prompt: "Beginning", generator: "torch.Generator") -> list[tuple[int, ...]]:
        """Draw the symbols that complete the last word of the prompt, for each of n texts."""
        if not prompt.covers:
            return [()] * n
        from chainrule.heads import Categorical

        scores = cover_log_probs(self.model, prompt)
        chosen = Categorical(logits=scores).filtered(**self.filters)
        return [tuple(prompt.covers[index]) for index in chosen.sample((n,), generator=generator).tolist()]

    def _symbols(self, prompt: "Ids", length: int, generator: "torch.Generator") -> Iterator[int]:
        prefix = torch.from_numpy(prompt) if len(prompt) else None
        for drawn in self.model.stream(1, prefix=prefix, count=length, generator=generator, **self.filters):
            symbol = int(drawn)
            if symbol == self.eos:
                return
            yield symbol

    def _after(self, prompt: "Beginning", cover: Sequence[int], symbols: Iterator[int]) -> Iterator[str]:
        """Yield the text without the last word of the prompt, with which it begins."""
        pieces = self._decoded(prompt.ids, symbols)
        if cover:
            text = ""
            while prompt.rest not in text:
                text += next(pieces)
            yield from filter(None, [text.partition(prompt.rest)[2]])
        yield from pieces

    def _decoded(self, prompt: "Ids", symbols: Iterator[int]) -> Iterator[str]:
        decoder = Decoder(self.vocabulary, prompt)
        yield from filter(None, map(decoder.add, symbols))
        if rest := decoder.rest():
            yield rest

    def _generator(self, seed: int) -> "torch.Generator":
        return torch.Generator(self.device).manual_seed(seed)


def _joined(ids: "Ids", cover: Sequence[int]) -> "Ids":
    return np.concatenate([ids, np.array(cover, dtype=np.int64)])


def cover_log_probs(
    model: "AutoregressiveModel", prompt: "Beginning", read: "tuple[State, Tensor | None] | None" = None
) -> "Tensor":
    """Return log p(cover | ids) of each way to complete the prompt's last word, (C,), nats.

    `read` is the state and the last symbol (1,) after the ids; None reads them.
    """
    from chainrule.state import select

    device = modes.device_of(model)
    inner = sorted({tuple(cover[:-1]) for cover in prompt.covers})
    padded = torch.zeros(len(inner), max(map(len, inner)) + 1, dtype=torch.long)  # padded: nothing looks ahead
    for row, symbols in enumerate(inner):
        padded[row, : len(symbols)] = torch.tensor(symbols, dtype=torch.long)
    with modes.evaluating(model), torch.no_grad():
        state, x_prev = read or (model.initial_state(1), None)
        if read is None and len(prompt.ids):
            ids = torch.from_numpy(prompt.ids).to(device)
            state, x_prev = model.unroll(ids[None], state)[1], ids[-1:]
        x_prev = None if x_prev is None else x_prev.expand(len(inner))
        state = select(state, torch.zeros(len(inner), dtype=torch.long, device=device))
        conditionals: Any = model.unroll(padded.to(device), state, x_prev)[0]
        log_p: Tensor = conditionals.logits.double().log_softmax(-1).cpu()  # (inner, 1 + longest, V)
    terms = log_p.gather(2, padded[..., None]).squeeze(2)
    before = torch.nn.functional.pad(terms.cumsum(1)[:, :-1], (1, 0))
    rows = torch.tensor([inner.index(tuple(cover[:-1])) for cover in prompt.covers])
    places = torch.tensor([len(cover) - 1 for cover in prompt.covers])
    return before[rows, places] + log_p[rows, places, torch.tensor([cover[-1] for cover in prompt.covers])]


@contextmanager
def one_thread(device: "torch.device") -> Iterator[None]:
    """Compute with one thread: for one row at a time, splitting the work costs more than it saves."""
    threads = torch.get_num_threads()
    if device.type == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


_LONGEST = 1 << 16  # symbols of a line, and of the lines that are read together


@dataclass(frozen=True)
class TextEmbedding:
    """Embed the lines of a text: print the number of each, and the features that predict its next symbol.

    A recurrent model gives the state of its top layer after the line, a Transformer the features of its last block.
    Features of averaged models are concatenated. Every line is read from the initial state.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "The text, - for standard input.",
    }


def embed_lines(run: "TextTask", data: "Texts", options: TextEmbedding, *, device: str) -> Result:
    model: Any = run.model(device)
    if not hasattr(model, "features"):
        raise ValueError(f"embed: a {run.config.model} has no features")
    from chainrule.data import padded

    model_device = next(model.parameters()).device

    def answer(batch: "list[Line]") -> Answered:
        lengths = torch.tensor([len(ids) for _, _, ids in batch])
        x = padded([ids for _, _, ids in batch], int(lengths.max()))
        with torch.no_grad():
            # The features at an element are of those before it: at one past the end, of the whole line.
            h = model.features(torch.nn.functional.pad(x, (0, 1)).to(model_device))
            h = h[torch.arange(len(batch)), lengths.to(model_device)]
        names = (str(line) if not isinstance(data, list) else data[line - 1] for line, _, _ in batch)
        return list(zip(names, h.float().cpu().numpy(), strict=True)), ()

    def rows() -> Iterator[Sequence[Any]]:
        yield from run.answered(_batched_lines(run, data), answer, nothing)

    columns = [Column("input"), Column("code", heading="z")]
    return Result(columns, rows(), main="code", form="csv", hints={"batchwise": True}, figure=plane_figure)


def _batched_lines(run: "TextTask", data: "Texts") -> "Iterator[list[Line]]":
    """Yield lines with numbers and symbols, in batches."""
    from chainrule_app.readers.row_order import SMALL_BATCH
    from chainrule_app.tasks.text.scoring import read_pieces, whole_lines

    rows: list[Line] = []
    longest = held = 0
    strict = run.data.level != "byte"
    for line, text in _texts(run, data) if isinstance(data, list) else whole_lines(read_pieces(data, strict=strict)):
        ids = run.vocabulary.encode(text.removesuffix("\n"))
        if len(ids) > _LONGEST:
            raise ValueError(f"line {line}: expected at most {_LONGEST:,} symbols, got {len(ids):,}: divide the line")
        size = (len(rows) + 1) * max(longest, len(ids))
        if rows and (size > _LONGEST or size > max(2 * (held + len(ids)), SMALL_BATCH)):
            yield rows
            rows, longest, held = [], 0, 0
        rows.append((line, text, ids))
        longest, held = max(longest, len(ids)), held + len(ids)
    if not rows:
        raise ValueError(f"{'data' if isinstance(data, list) else data}: expected at least one input, got none")
    yield rows


def _texts(run: "TextTask", texts: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Number texts and add line ends."""
    for number, text in enumerate(texts, 1):
        if run.data.reading == "stream":
            yield number, f"{text}\n"
        elif "\n" in text.removesuffix("\n"):
            raise OptionError(
                "data", f"text {number}", "expected a single line, as the run was trained on, got several"
            )
        else:
            yield number, text.removesuffix("\n") + "\n"
