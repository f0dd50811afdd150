"""Translate sentences, and compare translations with references."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from chainrule._app.results import Column, Form, Result
from chainrule._app.tasks.config import NBestOptions, SearchOptions, within

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from chainrule._app.tasks.translate.searching import Translator
    from chainrule._app.tasks.translate.task import TranslateTask
    from chainrule.data._pairs import Pair, PairedSentences

PLOTS = (".png", ".svg", ".pdf")
_TOGETHER = 4096  # sentences read before they are sorted by length and translated


@dataclass(frozen=True)
class TranslationOptions(NBestOptions):
    """Translate sentences, a line each.

    An empty line is answered by an empty line. With --n-best, a table has a row for each translation: the number of the
    sentence, its rank, the text, and its negative log-probability in nats.

    Args:
        file: Sentences, a line each, as those of training are; .gz too; - is standard input.
        json: Print one JSON object a translation, with its source, its nats, and whether the search proved it the best.
        plot: An image (.png, .svg, .pdf) of what the translation of the first sentence attended to.
    """

    max_length: int | None = within(None, 1, 1 << 20)
    """Most symbols of a translation; some more than training ever saw if not given."""


def translate(run: "TranslateTask", data: list[str], options: TranslationOptions, *, device: str) -> Result:
    """Translate the sentences of a file: a row a translation."""
    translator, file = translator_of(run, options.max_length, device), data[0]
    sentences = read_sources(run, file)
    first: list[tuple[str, str]] = []  # sentence that is not empty, and its translation

    def rows() -> Iterator[Sequence[Any]]:
        for start in range(0, len(sentences), _TOGETHER):
            part = sentences[start : start + _TOGETHER]
            found = translator.search(
                [text for _, text in part],
                beam_size=options.beam,
                n_best=options.n_best,
                length_penalty=options.length_penalty,
                exact=True,
            )
            for (line, source), answers in zip(part, found, strict=True):
                if source and not first:
                    first.append((source, answers[0].text))
                for rank, answer in enumerate(answers, 1):
                    nats = 0.0 - answer.log_prob  # no minus before a zero
                    yield line, source, rank, answer.text, nats, answer.score, answer.ended, answer.proven

    def figure() -> "Figure":
        from chainrule.diagnostics._attention_maps import attention_map

        if not translator.model.has_attention:
            raise ValueError("--plot: expected a run with attention, got one that reads a fixed vector")
        if not first:
            raise ValueError(f"--plot: {file} has no sentence to draw")
        return attention_map(translator.attention(*first[0]), *translator.symbols(*first[0]))

    columns = [
        Column("line"),
        Column("source"),
        Column("rank", shown=options.n_best > 1),
        Column("translation"),
        Column("nats", 4),
        *(Column(name, shown=False) for name in ("score", "ended", "proven")),
    ]
    form: Form = "lines" if options.n_best == 1 else "table"
    return Result(columns, rows(), main="translation", form=form, plots=dict.fromkeys(PLOTS, figure))


def translator_of(run: "TranslateTask", max_length: int | None, device: str) -> "Translator":
    """The trained model with its vocabularies."""
    from chainrule._app.tasks.translate.searching import Translator

    model, pairs = run.model(device), run.pairs
    longest = run.longest if max_length is None else max_length + 1  # <eos> is counted there
    return Translator(model, pairs.source_vocabulary, pairs.target_vocabulary, longest)


def read_sources(run: "TranslateTask", file: str) -> list[tuple[int, str]]:
    """The sentences of a file with the numbers of their lines, all of them checked."""
    from chainrule.data._pairs import encode_sentence, read_sentences
    from chainrule.data._text import name_of

    vocabulary, name = run.pairs.source_vocabulary, name_of(file)
    sentences = [(line, text.strip()) for line, text in read_sentences(file)]
    by_tabs = run.config.sources["target"] is None
    for line, text in sentences:
        if by_tabs and "\t" in text:
            raise ValueError(
                f"{name} line {line}: expected a source sentence, got several columns: give the first alone (cut -f1), "
                "or compare with translations by chainrule evaluate"
            )
        encode_sentence(vocabulary, text, run.data.max_length, name, line)
    return sentences


@dataclass(frozen=True)
class TranslationEvaluation(SearchOptions):
    """Compare translations with references: BLEU and chrF by sacrebleu, with their signatures, and perplexity.

    Sentences are decoded, no word of a reference is shown to the model; perplexity, over all words and ends of the
    references, is the model's own exact likelihood.

    Args:
        data: Pairs, a line each: the source, a tab, the target; .gz too.
    """

    source: Path | None = None
    """In place of DATA: source sentences, a line each."""
    target: Path | None = None
    """Their references, a line each."""
    tokenize: Literal["13a", "intl", "char", "zh", "none"] | None = None
    """How BLEU cuts words; as in training if not given."""


def evaluate_translator(
    run: "TranslateTask", data: str | None, options: TranslationEvaluation, *, device: str
) -> Result:
    """Translate the sources of pairs, and compare with their targets."""
    from chainrule.data._pairs import pair_evaluation, read_pairs
    from chainrule.metrics import bleu, chrf
    from chainrule.training import evaluate

    source, target = options.source, options.target
    if (data is None) == (source is None) or (source is None) != (target is None):
        raise ValueError("DATA: expected pairs, or --source and --target in its place, and nothing else")
    first = Path(data) if source is None and data is not None else source
    assert first is not None
    pairs = list(read_pairs(first, target))
    if not pairs:
        raise ValueError(f"{first}: expected at least one pair, got none")
    numbers, translator = encoded_pairs(run, pairs, first, target), translator_of(run, None, device)
    found = translator.search(
        [pair.source for pair in pairs], beam_size=options.beam, length_penalty=options.length_penalty
    )
    hypotheses, references = [best.text for best, *_ in found], [pair.target for pair in pairs]
    scores = [bleu(hypotheses, references, tokenize=options.tokenize or run.tokenize), chrf(hypotheses, references)]
    figures: dict[str, Any] = {
        "sentences": len(pairs),
        "beam": options.beam,
        "length_penalty": options.length_penalty,
        "perplexity": evaluate(translator.model, pair_evaluation(numbers)).perplexity,
    }
    for score in scores:
        figures |= {score.name.lower(): score.value, f"{score.name.lower()}_signature": score.signature}
    return Result([], [], summary=lambda: figures, about={"measured": run.basis})


def encoded_pairs(run: "TranslateTask", pairs: "list[Pair]", source: Path, target: Path | None) -> "PairedSentences":
    """Pairs as numbers."""
    from chainrule.data._pairs import PairedSentences, encode_sentence
    from chainrule.data._ragged import Ragged

    limit, known = run.data.max_length, run.pairs

    def sides() -> "Iterator[Ragged]":
        for vocabulary, side, file in (
            (known.source_vocabulary, "source", source),
            (known.target_vocabulary, "target", target or source),
        ):
            yield Ragged.of(
                [encode_sentence(vocabulary, getattr(pair, side), limit, str(file), pair.line) for pair in pairs]
            )

    return PairedSentences(*sides())
