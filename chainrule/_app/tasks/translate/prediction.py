"""Translate sentences, compare translations with references, and look inside a translator."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from chainrule._app.heavy import np, torch
from chainrule._app.results import Column, Form, Report, Result
from chainrule._app.tasks.config import CheckedOptions, NBestOptions, SearchOptions, within
from chainrule._app.tasks.output import attention_report, inspect_again
from chainrule._app.tasks.run_directory import DATA
from chainrule.data._text import name_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from chainrule._app.tasks.translate.searching import Translator
    from chainrule._app.tasks.translate.task import TranslateTask
    from chainrule.data import Vocabulary
    from chainrule.data._pairs import Pair, PairedSentences

PLOTS = (".png", ".svg", ".pdf")
_TOGETHER = 4096  # sentences read before they are sorted by length and translated


@dataclass(frozen=True)
class TranslationOptions(NBestOptions):
    """Translate sentences, one per line.

    An empty line gives an empty line. With --n-best, a table has one row per translation: the sentence number, the
    rank, the text, and its negative log-probability in nats.

    Args:
        file: Sentences, one per line, in the form of the training data; .gz too; - is standard input.
        json: Print one JSON object per translation, with its source, its nats, and a proof of optimality if found.
        plot: An image (.png, .svg, .pdf) of the attention in the first translation.
    """

    max_length: int | None = within(None, 1, 1 << 20)
    """Maximum symbols of a translation; by default slightly more than in training."""


def translate(run: "TranslateTask", data: list[str], options: TranslationOptions, *, device: str) -> Result:
    translator, file = translator_of(run, options.max_length, device), data[0]
    sentences = read_sources(run, file)
    first: list[tuple[str, str]] = []  # first non-empty sentence and its translation

    def rows() -> Iterator[Sequence[Any]]:
        for start in range(0, len(sentences), _TOGETHER):
            part = sentences[start : start + _TOGETHER]
            results = translator.search(
                [text for _, text in part],
                beam_size=options.beam,
                n_best=options.n_best,
                length_penalty=options.length_penalty,
                exact=True,
            )
            for (line, source), answers in zip(part, results, strict=True):
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
    from chainrule._app.tasks.translate.searching import Translator

    longest = run.longest if max_length is None else max_length + 1  # <eos> is counted there
    return Translator(run.model(device), *run.vocabularies, longest)


def read_sources(run: "TranslateTask", file: str) -> list[tuple[int, str]]:
    """Read and check the sentences of a file, with line numbers."""
    from chainrule.data._pairs import encode_sentence, read_sentences

    (vocabulary, _), name = run.vocabularies, name_of(file)
    sentences = [(line, text.strip()) for line, text in read_sentences(file)]
    by_tabs = run.config.sources["target"] is None
    for line, text in sentences:
        if by_tabs and "\t" in text:
            raise ValueError(
                f"{name} line {line}: expected a source sentence, got several columns: pass only the first (cut -f1), "
                "or compare with references by chainrule evaluate"
            )
        encode_sentence(vocabulary, text, run.data.max_length, name, line)
    return sentences


@dataclass(frozen=True)
class TranslationEvaluation(SearchOptions):
    """Compare translations with references: BLEU and chrF by sacrebleu, with their signatures, and perplexity.

    Translations are decoded without seeing the references; perplexity is the exact likelihood of all words and ends of
    the references.

    Args:
        data: Pairs, one per line: the source, a tab, the target; .gz too.
    """

    source: Path | None = None
    """Source sentences, one per line; replaces DATA."""
    target: Path | None = None
    """References of --source, one per line."""
    tokenize: Literal["13a", "intl", "char", "zh", "none"] | None = None
    """Word tokenisation of BLEU; as in training by default."""


def evaluate_translator(
    run: "TranslateTask", data: str | None, options: TranslationEvaluation, *, device: str
) -> Result:
    from chainrule.data._pairs import pair_evaluation, read_pairs
    from chainrule.metrics import bleu, chrf
    from chainrule.training import evaluate

    source, target = options.source, options.target
    if (data is None) == (source is None) or (source is None) != (target is None):
        raise ValueError("DATA: expected either pairs, or --source and --target")
    first = Path(data) if source is None and data is not None else source
    assert first is not None
    pairs = list(read_pairs(first, target))
    if not pairs:
        raise ValueError(f"{first}: expected at least one pair, got none")
    numbers, translator = encoded_pairs(run, pairs, first, target), translator_of(run, None, device)
    results = translator.search(
        [pair.source for pair in pairs], beam_size=options.beam, length_penalty=options.length_penalty
    )
    hypotheses, references = [best.text for best, *_ in results], [pair.target for pair in pairs]
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
    from chainrule.data._pairs import PairedSentences, encode_sentence
    from chainrule.data._ragged import Ragged

    def encoded(vocabulary: "Vocabulary", side: str, file: Path) -> Ragged:
        longest = run.data.max_length
        return Ragged.of(
            [encode_sentence(vocabulary, getattr(pair, side), longest, str(file), pair.line) for pair in pairs]
        )

    return PairedSentences(*map(encoded, run.vocabularies, ("source", "target"), (source, target or source)))


@dataclass(frozen=True)
class TranslatorInspection(CheckedOptions):
    """Look inside a trained translator: the size of its parts, the attention of each word, and its surprise.

    Scores the references of held-out pairs, or of DATA, and translates their sources greedily. Prints the parts and how
    narrowly the decoder attends, and writes a page with an alignment of each pair (HTML, one file, needs no network).

    Args:
        data: Pairs to read, one per line: the source, a tab, the target; .gz too; held-out pairs by default.
    """

    rows: int = within(4, 1, 64)
    """Number of pairs to read."""


def inspect_translator(run: "TranslateTask", file: str | None, options: TranslatorInspection, *, seed: int) -> Report:
    from chainrule._app.pages.attention_page import AttentionExample

    pairs, translator = _pairs(run, file, options.rows), translator_of(run, None, "cpu")
    batch = encoded_pairs(run, pairs, Path(file or run.path), None).batch(np.arange(len(pairs)))
    assert batch.lengths is not None
    with torch.no_grad():
        nats = -translator.model(batch.x, batch.context, batch.lengths).log_prob(batch.x)  # (B, T)
    written = [best.text for best, *_ in translator.search([pair.source for pair in pairs])]
    examples = []
    for pair, translation, terms, length in zip(pairs, written, nats, batch.lengths.tolist(), strict=True):
        source_symbols, symbols = translator.symbols(pair.source, pair.target)
        alpha = translator.attention(pair.source, pair.target) if translator.model.has_attention else None
        texts = {"source": pair.source, "reference": pair.target, "translation": translation}
        facts = {**texts, "read": source_symbols}
        nats_each = terms[:length].double().tolist()
        examples.append(
            AttentionExample(f"Pair {pair.line}", texts, facts, symbols, nats_each, alpha, read=source_symbols)
        )
    command = inspect_again(run, file, rows=options.rows)
    return attention_report(run, translator.model, examples, looks_at="symbols of the source", command=command)


def _pairs(run: "TranslateTask", file: str | None, rows: int) -> "list[Pair]":
    """Return the first pairs of a file, or held-out ones."""
    from itertools import islice

    from chainrule.data._pairs import Pair, held_out_texts, read_pairs

    if file is None:
        texts = zip(*held_out_texts(run.path / DATA), strict=True)
        return [Pair(line, source, target) for line, (source, target) in enumerate(islice(texts, rows), start=1)]
    if not (pairs := list(islice(read_pairs(file), rows))):
        raise ValueError(f"{file}: expected at least one pair, got none")
    return pairs
