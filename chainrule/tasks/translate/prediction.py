"""Translate sentences, and compare translations with references."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.tasks.abilities import Answer, Record
from chainrule.tasks.config import NBestOptions, SearchOptions, within

if TYPE_CHECKING:
    from chainrule.data.pairs import Pair, PairedSentences
    from chainrule.tasks.translate.searching import Translation, Translator
    from chainrule.tasks.translate.task import TranslateTask

_TOGETHER = 4096  # sentences read before they are sorted by length and translated


@dataclass(frozen=True)
class TranslationOptions(NBestOptions):
    """Translate sentences, a line each.

    An empty line is answered by an empty line. With --n-best, each translation has a line of its own: the number of the
    sentence, the log-probability and the text, separated by tabs.

    Args:
        file: Sentences, a line each, as those of training are; .gz too; - is standard input.
        json: Print a JSON object for each sentence.
    """

    max_length: int | None = within(None, 1, 1 << 20)
    """Most symbols of a translation; some more than training ever saw if not given."""
    attention: Path | None = None
    """An image of what the translation of the first sentence attended to, .png, .svg or .pdf."""


def translate(
    run: "TranslateTask", data: list[str], options: TranslationOptions, *, out: Path | None, device: str, json: bool
) -> Answer:
    """Translate the sentences of a file."""
    translator, file = translator_of(run, options.max_length, device), data[0]
    if options.attention is not None and not translator.model.has_attention:
        raise ValueError("--attention: expected a run with attention, got one that reads a fixed vector")
    sentences = read_sources(run, file)

    def records() -> Iterator[Record]:
        if options.attention is not None:
            yield _drawn(translator, sentences, file, options.attention, options)
        for first in range(0, len(sentences), _TOGETHER):
            part = sentences[first : first + _TOGETHER]
            found = translator.search(
                [text for _, text in part],
                beam_size=options.beam,
                n_best=options.n_best,
                length_penalty=options.length_penalty,
                exact=json or options.n_best > 1,
            )
            for (line, text), answers in zip(part, found, strict=True):
                yield _record(line, text, answers, numbered=options.n_best > 1)

    def closing() -> Iterable[str]:
        if out is not None:
            yield f"{len(sentences):,} sentences translated into {out}"

    return Answer(records(), closing=closing)


def translator_of(run: "TranslateTask", max_length: int | None, device: str) -> "Translator":
    """The trained model with its vocabularies."""
    from chainrule.tasks.translate.searching import Translator
    from chainrule.training.parallel import choose_device

    model, pairs = run.model(choose_device(device)), run.pairs
    longest = run.longest if max_length is None else max_length + 1  # <eos> is counted there
    return Translator(model, pairs.source_vocabulary, pairs.target_vocabulary, longest)


def read_sources(run: "TranslateTask", file: str) -> list[tuple[int, str]]:
    """The sentences of a file with the numbers of their lines, all of them checked.

    Raises:
        ValueError: one is longer than the run allows, or has a tab though the run was trained on pairs with a tab
            between them; the message names the file and the line.
    """
    from chainrule.data.pairs import encode_sentence, read_sentences
    from chainrule.data.text import name_of

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


def _record(line: int, source: str, answers: "Sequence[Translation]", *, numbered: bool) -> Record:
    values = {
        "line": line,
        "source": source,
        "translation": answers[0].text,
        "n_best": [
            {"text": answer.text, "log_prob": answer.log_prob, "score": answer.score, "ended": answer.ended}
            for answer in answers
        ],
    }
    shown = [f"{line}\t{answer.log_prob:.4f}\t{answer.text}" if numbered else answer.text for answer in answers]
    return Record(values, "\n".join(shown))


def _drawn(
    translator: "Translator", sentences: Sequence[tuple[int, str]], file: str, path: Path, options: TranslationOptions
) -> Record:
    """Draw what the translation of the first sentence attended to."""
    from chainrule.diagnostics.attention_map import attention_map
    from chainrule.tasks.page import save_figure

    source = next((text for _, text in sentences if text), None)
    if source is None:
        raise ValueError(f"--attention: {file} has no sentence to draw")
    [[best]] = translator.search([source], beam_size=options.beam, length_penalty=options.length_penalty)
    save_figure(attention_map(translator.attention(source, best.text), *translator.symbols(source, best.text)), path)
    return Record({}, f"what the translation of {source!r:.60} attended to: {path}", notice=True)


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
    tokenize: str | None = None
    """How BLEU cuts words: 13a, intl, char or none; as in training if not given."""


def evaluate_translator(
    run: "TranslateTask", data: str | None, options: TranslationEvaluation, *, device: str
) -> Answer:
    """Translate the sources of pairs, and compare with their targets."""
    from chainrule.data.pairs import pair_evaluation, read_pairs
    from chainrule.metrics.bleu import bleu, chrf
    from chainrule.training.evaluate import evaluate

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
    perplexity = evaluate(translator.model, pair_evaluation(numbers)).perplexity
    figures = {
        "sentences": len(pairs),
        "beam": options.beam,
        "length_penalty": options.length_penalty,
        **{score.name: {"value": score.value, "signature": score.signature} for score in scores},
        "perplexity": perplexity,
    }
    search = "greedy" if options.beam == 1 else f"beam {options.beam}, length penalty {options.length_penalty:g}"
    lines = [f"{score.name:<10} {score.value:6.2f}  {score.signature}" for score in scores]
    lines.append(f"perplexity {perplexity:6.2f}  per symbol of the references, ends included")
    lines.append(f"{len(pairs):,} sentences, {search}")
    return Answer(iter([Record(figures, "\n".join(lines))]))


def encoded_pairs(run: "TranslateTask", pairs: "list[Pair]", source: Path, target: Path | None) -> "PairedSentences":
    """Pairs as numbers.

    Raises:
        ValueError: a sentence is longer than the run allows; the message names the file and the line.
    """
    from chainrule.data.pairs import PairedSentences, encode_sentence
    from chainrule.data.ragged import Ragged

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
