"""Translate sentences by beam search, compare translations with references, and look inside a translator."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast

from chainrule.option_error import OptionError, option
from chainrule.ranges import Range
from chainrule_app.batchwise import Answered
from chainrule_app.blocks import in_blocks
from chainrule_app.heavy import modes, np, pair_data, torch
from chainrule_app.readers.origin import STDIN, HeldRows, Origin, origin_of
from chainrule_app.readers.text import name_of
from chainrule_app.results import Column, Form, Report, Result
from chainrule_app.tasks.config import CheckedOptions
from chainrule_app.tasks.options import NBestOptions, SearchOptions
from chainrule_app.tasks.output import attention_report, inspect_again
from chainrule_app.tasks.run_directory import DATA
from chainrule_app.tasks.tally import Tally, likelihood_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

    from chainrule import TrainableModel
    from chainrule.data import Batch, Vocabulary
    from chainrule.decoding import Decoded
    from chainrule.training import MetricValue, ValidationMetric
    from chainrule_app.readers.pairs import Pair, PairedSentences
    from chainrule_app.readers.ragged import Ragged
    from chainrule_app.readers.row_order import Rows
    from chainrule_app.tasks.translate.task import TranslateTask, TranslationModel


_TOGETHER = 1024  # sentences read before they are sorted by length and translated
_BATCHWISE = {"batchwise": True, "shard": 1}
_COMPARED = 2000  # held-out pairs, the first: enough to distinguish epochs


@dataclass(frozen=True)
class TranslationOptions(NBestOptions):
    """Translate sentences, one per line.

    An empty line gives an empty line. With --n-best, a table has one row per translation: the sentence number, the
    rank, the text, and its negative log-probability in nats.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "file": "Sentences, one per line, in the form of the training data; .gz too; - is standard input.",
        "json": "Print one JSON object per translation, with its source, its nats, and a proof of optimality if found.",
        "plot": "An image (.png, .svg, .pdf) of the attention in the first translation.",
    }

    max_length: Annotated[int, Range(1, 1 << 20)] | None = None
    """Maximum symbols of a translation; by default slightly more than in training."""


def translate(run: "TranslateTask", data: list[str], options: TranslationOptions, *, device: str) -> Result:
    translator, file = translator_of(run, options.max_length, device), data[0]
    sentences = read_sources(run, file)
    first: list[tuple[str, str]] = []  # a non-empty sentence of each batch and its translation

    def answer(part: list[tuple[int, str]]) -> Answered:
        results = translator.search(
            [text for _, text in part],
            beam_size=options.beam,
            n_best=options.n_best,
            length_penalty=options.length_penalty,
            exact=True,
        )
        drawn = [(source, answers[0].text) for (_, source), answers in zip(part, results, strict=True) if source][:1]
        return [
            # the difference has no minus before a zero
            (line, source, rank, answer.text, 0.0 - answer.log_prob, answer.score, answer.ended, answer.proven)
            for (line, source), answers in zip(part, results, strict=True)
            for rank, answer in enumerate(answers, 1)
        ], (drawn,)

    def rows() -> Iterator[Sequence[Any]]:
        yield from run.answered(in_blocks(sentences, _TOGETHER), answer, first.extend)

    def figure(_: Result) -> "Figure":
        from chainrule_app.pages.attention_figures import attention_map

        if not translator.model.has_attention:
            raise OptionError("plot", "expected a run with attention, got one that reads a fixed vector")
        if not first:
            raise OptionError("plot", f"{file} has no sentence to draw")
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
    return Result(columns, rows(), main="translation", form=form, figure=figure, hints=_BATCHWISE)


def translator_of(run: "TranslateTask", max_length: int | None, device: str) -> "Translator":
    longest = run.longest if max_length is None else max_length + 1  # <eos> is counted there
    return Translator(run.model(device), *run.vocabularies, longest)


def read_sources(run: "TranslateTask", file: str) -> list[tuple[int, str]]:
    """Read and check the sentences of a file, with line numbers."""
    (vocabulary, _), where = run.vocabularies, origin_of(file) if file != STDIN else Origin(name_of(file))
    in_lines = not isinstance(file, HeldRows)
    sentences = [(line, text.strip() if in_lines else text) for line, text in pair_data.read_sentences(file)]
    by_tabs = run.config.sources["target"] is None and in_lines
    for line, text in sentences:
        if by_tabs and "\t" in text:
            raise ValueError(
                f"{where.at(line)}: expected a source sentence, got several columns: pass only the first (cut -f1), "
                "or use chainrule evaluate to compare with references"
            )
        pair_data.encode_sentence(vocabulary, text, run.data.max_length, where, line)
    return sentences


@dataclass(frozen=True)
class TranslationEvaluation(SearchOptions):
    """Compare translations with references: BLEU and chrF by sacrebleu, with their signatures, and perplexity.

    Translations are decoded without seeing the references; perplexity is the exact likelihood of all words and ends of
    the references.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "Pairs, one per line: the source, a tab, the target; .gz too.",
    }

    source: Path | None = None
    """Source sentences, one per line; replaces DATA."""
    target: Path | None = None
    """References of --source, one per line."""
    tokenize: Literal["13a", "intl", "char", "zh", "none"] | None = None
    """Word tokenisation of BLEU; as in training by default."""


def evaluate_translator(
    run: "TranslateTask", data: str | None, options: TranslationEvaluation, *, device: str
) -> Result:
    from chainrule.metrics import bleu, chrf
    from chainrule.training import Evaluation

    source, target = options.source, options.target
    if (data is None) == (source is None) or (source is None) != (target is None):
        raise OptionError("data", f"expected either pairs, or {option('source')} and {option('target')}")
    first = data if source is None and data is not None else source
    assert first is not None
    pairs = list(pair_data.read_pairs(first, target))
    if not pairs:
        raise ValueError(f"{first}: expected at least one pair, got none")
    numbers, translator = encoded_pairs(run, pairs, first, target), translator_of(run, None, device)
    hypotheses, references, total = list[str](), [pair.target for pair in pairs], Tally()

    def answer(part: "tuple[list[str], Batch | None]") -> Answered:
        sources, batch = part
        if batch is not None:
            return [], ([], *likelihood_of(translator.model, batch))
        results = translator.search(sources, beam_size=options.beam, length_penalty=options.length_penalty)
        return [], ([best.text for best, *_ in results], 0.0, 0)

    def add(texts: list[str], nats: float, elements: int) -> None:
        hypotheses.extend(texts)
        total.add(nats, elements)

    def evaluated() -> Iterator[Sequence[Any]]:
        searched = ((block, None) for block in in_blocks((pair.source for pair in pairs), _TOGETHER))
        scored = ((list[str](), batch) for batch in pair_data.pair_evaluation(numbers))
        yield from run.answered(chain(searched, scored), answer, add)

    @cache
    def figures() -> dict[str, Any]:
        scores = [bleu(hypotheses, references, tokenize=options.tokenize or run.tokenize), chrf(hypotheses, references)]
        found: dict[str, Any] = {
            "sentences": len(pairs),
            "beam": options.beam,
            "length_penalty": options.length_penalty,
            "perplexity": Evaluation(total.nats, total.elements).perplexity,
        }
        for score in scores:
            found |= {score.name.lower(): score.value, f"{score.name.lower()}_signature": score.signature}
        return found

    return Result([], evaluated(), summary=figures, about={"measured": run.basis}, hints=_BATCHWISE)


def encoded_pairs(run: "TranslateTask", pairs: "list[Pair]", source: Any, target: Any) -> "PairedSentences":
    from chainrule_app.readers.ragged import Ragged

    def encoded(vocabulary: "Vocabulary", side: str, file: Any) -> "Ragged":
        longest, texts = run.data.max_length, ((getattr(pair, side), pair.line) for pair in pairs)
        return Ragged.of(
            [pair_data.encode_sentence(vocabulary, text, longest, origin_of(file), line) for text, line in texts]
        )

    return pair_data.PairedSentences(*map(encoded, run.vocabularies, ("source", "target"), (source, target or source)))


@dataclass(frozen=True)
class TranslatorInspection(CheckedOptions):
    """Look inside a trained translator: the size of its parts, the attention of each word, and its surprise.

    Scores the references of held-out pairs, or of DATA, and translates their sources greedily. Prints the parts and how
    narrowly the decoder attends, and writes a page with an alignment of each pair (HTML, one file, needs no network).
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "Pairs to read, one per line: the source, a tab, the target; .gz too; held-out pairs by default.",
    }

    rows: Annotated[int, Range(1, 64)] = 4
    """Number of pairs to read."""


def inspect_translator(run: "TranslateTask", file: str | None, options: TranslatorInspection, *, seed: int) -> Report:
    from chainrule_app.pages.attention_page import AttentionExample

    pairs, translator = _pairs(run, file, options.rows), translator_of(run, None, "cpu")
    batch = encoded_pairs(run, pairs, file or run.path, None).batch(np.arange(len(pairs)))
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
    if file is None:
        texts = zip(*pair_data.held_out_texts(run.path / DATA), strict=True)
        return [pair_data.Pair(line, *pair) for line, pair in enumerate(islice(texts, rows), start=1)]
    if not (pairs := list(islice(pair_data.read_pairs(file), rows))):
        raise ValueError(f"{file}: expected at least one pair, got none")
    return pairs


def translations(
    model: "TranslationModel", sources: "Ragged", *, batch_size: int = 128, exact: bool = False, **search: Any
) -> "list[Decoded]":
    """Search the most probable translations of each sentence, in order, in batches of similar length.

    `search` has options of `beam_search`, whose beam is 1 by default; `exact` scores each sentence alone.
    """
    from chainrule.decoding import beam_search

    order = np.argsort(sources.lengths, kind="stable")
    results: dict[int, Decoded] = {}
    search = {"beam_size": 1, "length_penalty": 0.0} | search
    scoring = {name: search[name] for name in ("eos", "length_penalty")}
    for first in range(0, len(order), batch_size):
        chosen = order[first : first + batch_size]
        decoded = beam_search(model, pair_data.source_context(sources, chosen), **search)
        if exact:
            contexts = (_source(model, sources, chosen[[row]]) for row in range(len(chosen)))
            decoded = [row.rescored(model, context, **scoring) for context, row in zip(contexts, decoded, strict=True)]
        results.update(zip(chosen.tolist(), decoded, strict=True))
    return [results[index] for index in range(len(order))]


def _source(model: "TranslationModel", sources: "Ragged", rows: Any) -> "dict[str, Tensor]":
    """Return the chosen sentences as a context on the model's device."""
    device = modes.device_of(model)
    return {name: leaf.to(device) for name, leaf in pair_data.source_context(sources, rows).items()}


@dataclass(frozen=True)
class Translator:
    """Model with its vocabularies: text in, text out. An unknown word is replaced by the source word it attends to
    most."""

    model: "TranslationModel"  # in evaluation mode
    source_vocabulary: "Vocabulary"  # includes <eos>
    target_vocabulary: "Vocabulary"  # includes <eos>
    max_length: int  # maximum symbols of a translation, including <eos>

    def search(self, sources: Sequence[str], *, exact: bool = False, **search: Any) -> "list[list[Translation]]":
        """Return the n best translations of each sentence; takes the options of `translations`."""
        from chainrule_app.readers.ragged import Ragged

        filled = [index for index, source in enumerate(sources) if source.strip()]
        numbers = Ragged.of([self.source_vocabulary.encode(f"{sources[index]}\n") for index in filled])
        search |= {"eos": self.target_vocabulary.eos, "max_length": self.max_length}
        results = translations(self.model, numbers, exact=exact, **search)
        answers = [[Translation("", 0.0, 0.0, True, True)] for _ in sources]
        for index, result in zip(filled, results, strict=True):
            texts = [self._text(sources[index], sequence.tolist()) for sequence in result.sequences]
            figures = zip(texts, result.log_probs.tolist(), result.scores.tolist(), result.ended.tolist(), strict=True)
            answers[index] = [Translation(*figure, result.proven) for figure in figures]
        return answers

    def symbols(self, source: str, target: str) -> tuple[list[str], list[str]]:
        """Return the printed symbols of a sentence and of its translation."""
        vocabularies = (self.source_vocabulary, source), (self.target_vocabulary, target)
        read, written = (
            [vocabulary.token(symbol) for symbol in vocabulary.encode(f"{text}\n")] for vocabulary, text in vocabularies
        )
        return read, written

    def attention(self, source: str, target: str) -> "Tensor":
        """Return the attention of each translated symbol over the source symbols, (T, S)."""
        return self._attended(source, self.target_vocabulary.encode(f"{target}\n").tolist())

    def _text(self, source: str, symbols: list[int]) -> str:
        from chainrule.data import WordVocabulary

        unknown = self.target_vocabulary.unknown
        text = self.target_vocabulary.decode(symbols)
        if unknown is None or unknown not in symbols or not self.model.has_attention:
            return text
        source_words, words = WordVocabulary.split_words(source), WordVocabulary.split_words(text)
        attended = self._attended(source, symbols)[:, : len(source_words)].argmax(1).tolist()
        return " ".join(
            source_words[index] if symbol == unknown else word
            for word, symbol, index in zip(words, symbols, attended, strict=True)
        )

    def _attended(self, source: str, symbols: list[int]) -> "Tensor":
        from chainrule_app.readers.ragged import Ragged

        sources = Ragged.of([self.source_vocabulary.encode(f"{source}\n")])
        x = torch.tensor([symbols], dtype=torch.long, device=modes.device_of(self.model))
        with torch.no_grad():
            return self.model.attended(x, _source(self.model, sources, np.zeros(1, dtype=np.int64)))[0].cpu()


@dataclass(frozen=True)
class Translation:
    text: str  # without <eos>
    log_prob: float  # log-probability in nats
    score: float  # ranking score
    ended: bool  # reached <eos>
    proven: bool  # see Decoded.proven


def translation_metric(run: "TranslateTask") -> "ValidationMetric":
    """Measure BLEU of greedy translations of held-out sentences; show another one each time."""
    from chainrule.metrics import bleu
    from chainrule.training import MetricValue, ValidationMetric

    sources, references = (texts[:_COMPARED] for texts in pair_data.held_out_texts(run.path / DATA))

    def answer(model: "TrainableModel", rows: "Rows") -> Sequence[str]:
        translator = Translator(cast("TranslationModel", model), *run.vocabularies, run.longest)
        return [best.text for best, *_ in translator.search([sources[row] for row in rows])]

    def compare(rows: "Rows", hypotheses: Sequence[str], step: int) -> "MetricValue":
        index = int(np.random.default_rng(step).integers(len(rows)))
        source, reference = sources[rows[index]], references[rows[index]]
        example = f"source      {source}\nreference   {reference}\nhypothesis  {hypotheses[index]}"
        value = bleu(hypotheses, [references[row] for row in rows], tokenize=run.tokenize).value
        return MetricValue("bleu", value, example)

    return ValidationMetric(len(sources), answer, compare)
