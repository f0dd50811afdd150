"""Text drawn from a trained model, as it comes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.config import CheckedOptions, within
from chainrule.tasks.display import counted

if TYPE_CHECKING:
    import torch

    from chainrule.base import AutoregressiveModel
    from chainrule.data.vocabulary import Ids, Vocabulary
    from chainrule.tasks.parallel_draws import ParallelDraws
    from chainrule.tasks.text.task import TextTask

_LEARNT = 1 << 20  # symbols of the training text that a draft of n-grams learns


@dataclass(frozen=True)
class TextSampling(CheckedOptions):
    """Draw texts from a trained model.

    Args:
        n: How many texts.
        out: A file to write; standard output if not given.
        json: Print one JSON object a text, with "prompt", "text", "elements" and "seed"; in parallel with "passes",
            "elements_per_pass" and "acceptance_rate" of all texts too.
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
    method: Literal["sequential", "parallel", "speculative"] = "sequential"
    """Symbol by symbol; or the same text in fewer passes, several symbols guessed and verified in each (with
    --adaptive-softmax another of the same distribution); or another text of the same distribution, in fewer still."""
    draft: Path | None = None
    """A run on the same symbols that guesses for --method parallel or speculative; n-grams of the training text if not
    given."""


def sample_text(
    run: "TextTask", n: int, options: TextSampling, *, out: Path | None, seed: int, device: str, json: bool
) -> Answer:
    """Draw n texts; a single one comes in pieces where it goes to the screen; the verb writes `out`."""
    from chainrule.heads.categorical import check_filters

    whole = json or out is not None
    options = replace(options, prompt=without_last_blank(run.vocabulary, options.prompt))
    check_filters(options.temperature, options.top_k, options.top_p)
    vocabulary = run.vocabulary
    if run.has_code:
        from chainrule.tasks.text.codes import sample_sentences

        return sample_sentences(run, n, options, seed=seed, device=device)
    model, ids = run.model(device), encode_prompt(vocabulary, options.prompt)
    ids, notice = fitting_prompt(model, ids, options.length)
    draws = _parallel_draws(run, model, options, device)
    sampler = Sampler(
        model,
        vocabulary,
        eos=vocabulary.eos if run.data.reading == "lines" else None,
        temperature=options.temperature,
        top_k=options.top_k,
        top_p=options.top_p,
        draw=draws,
    )

    def pieces() -> Iterator[str]:
        yield options.prompt
        yield from sampler.stream(ids, options.length, seed)
        yield "\n"

    def records() -> Iterator[Record]:
        if notice:
            yield Record({}, notice, notice=True)
        if n == 1 and not whole and draws is None:
            yield Record({}, pieces())
            return
        texts = sampler.texts(n, ids, options.length, seed)
        counted = {} if draws is None else draws.figures()
        for number, (text, elements) in enumerate(texts, start=1):
            values = {"prompt": options.prompt, "text": text, "elements": elements, "seed": seed, **counted}
            title = f"=== sample {number} of {n} ===\n" if n > 1 else ""
            yield Record(values, f"{title}{options.prompt}{text}")
        if draws is not None and not json:
            yield Record({}, draws.summary(), notice=True)

    return Answer(records())


def _parallel_draws(
    run: "TextTask", model: "AutoregressiveModel", options: TextSampling, device: str
) -> "ParallelDraws | None":
    """Sampler in parallel; None where symbols are drawn one by one.

    Raises:
        ValueError: the draft is over other symbols, or there is no use for it.
    """
    from chainrule.tasks.parallel_draws import ParallelDraws

    if options.method == "sequential":
        if options.draft is not None:
            raise ValueError("--draft: guesses for --method parallel or speculative: give one of them too")
        return None
    if options.draft is None:
        draft = _ngrams(run).to(next(model.parameters()).device)
    else:
        other = type(run).open(options.draft)
        if other.vocabulary.to_json() != run.vocabulary.to_json():
            raise ValueError(
                f"--draft {options.draft}: expected a run on the same symbols as {run.path}: train it on the same text"
            )
        draft = other.model(device)
    return ParallelDraws(model, draft, rejection=options.method == "speculative")


def _ngrams(run: "TextTask") -> "AutoregressiveModel":
    """N-grams of the end of the run's training text.

    Raises:
        ValueError: the run no longer has it.
    """
    from chainrule.decoding import NgramDraft
    from chainrule.tasks.text.preparing import corpus_of

    try:
        text = corpus_of(run).train
    except FileNotFoundError as error:
        raise ValueError(f"--method: n-grams need the training text, got {error}: give --draft RUN") from error
    return NgramDraft(text.slice(max(0, len(text) - _LEARNT), len(text)), len(run.vocabulary))


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
    from chainrule.data.characters import split_words

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
        draw: draws whole texts, called as `model.sample`, which is the default.
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
        draw: "Callable[..., torch.Tensor] | None" = None,
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
