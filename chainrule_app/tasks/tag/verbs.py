"""Tag and embed sentences with a trained tagger, and evaluate its tags."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

from chainrule.option_error import OptionError, option
from chainrule.ranges import Range
from chainrule_app.batchwise import Answered, nothing
from chainrule_app.heavy import modes, np, torch
from chainrule_app.printing import aligned, counted, spelled
from chainrule_app.readers import tagged as tag_reader
from chainrule_app.readers.row_order import in_order
from chainrule_app.readers.tagged.spans import spans_of
from chainrule_app.results import Column, Form, Report, Result
from chainrule_app.tasks.config import CheckedOptions, Switch
from chainrule_app.tasks.options import NBest
from chainrule_app.tasks.output import inside, inspect_again
from chainrule_app.tasks.tag.reading import sentences_of
from chainrule_app.tasks.tag.task import predicted_tags
from chainrule_app.tasks.tally import Tally, likelihood_of

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule.data import Batch
    from chainrule.models import SequenceTagger
    from chainrule_app.readers.row_order import Rows
    from chainrule_app.readers.tagged.conll_file import Sentence
    from chainrule_app.readers.tagged.prepare import TaggedSentences
    from chainrule_app.tasks.tag.task import TagTask


@dataclass(frozen=True)
class Tagging(CheckedOptions):
    r"""Tag sentences: write the tags into their column and keep everything else.

    Lines end with \n, without a byte order mark.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "file": (
            "Sentences in the columns of training, with or without tags, or one word per line; .gz too; - is "
            "standard input. Empty sentences stay empty."
        ),
        "json": (
            "Print one JSON object per sentence: its line, words, tags, their nats, and the probability of each tag."
        ),
        "csv": "Print one CSV row per sentence: its line, words, tags, and their nats.",
    }

    text: Switch = False
    """Read each line of FILE as a sentence, with words separated by blanks."""
    n_best: NBest | None = None
    """Print one row per sentence, with its N most probable tag sequences and their nats."""


def tag_file(run: "TagTask", data: list[str], options: Tagging, *, device: str) -> Result:
    file, n = sentences_of(run, data[0], tagged=False, text=options.text), options.n_best
    from chainrule.metrics import find_entities

    marks_spans = run.vocabulary.scheme is not None
    of_texts = run.data.spans and marks_spans and all(sentence.text for sentence in file.sentences if sentence.words)

    def rows() -> Iterator[Sequence[Any]]:
        model, numbered = run.model(device), tag_reader.number_sentences(file.sentences, run.vocabulary)

        def answer(numbers: "Rows") -> Answered:
            found = _tagged(run, model, numbered.batch(numbers), n or 1)
            return [row(number, answer) for number, answer in zip(numbers.tolist(), found, strict=True)], ()

        yield from run.answered(in_order(len(numbered), _TOGETHER, None, numbered.lengths), answer, nothing)

    def row(number: int, answer: TaggedSentence) -> Sequence[Any]:
        sentence = file.sentences[number]
        entities = list(find_entities(run.vocabulary.standard(answer.tags))) if marks_spans else []
        spans = [_spans(entities, sentence)] if marks_spans else []
        best = [answer.n_best] if n is not None else []
        marked = [sentence.text, spans_of(entities, sentence.offsets)] if of_texts else []
        written = [] if of_texts else [file.with_tags(number, answer.tags)]
        cells = answer.tags, answer.n_best[0]["nats"], *best, *spans, answer.probabilities
        return sentence.line, *marked, list(sentence.words), *cells, *written

    columns = [Column("line")]
    columns += [Column("text"), Column("label")] if of_texts else []
    columns += [Column("words", shown=not of_texts), Column("tags", shown=not of_texts), Column("nats", 4)]
    columns += [Column("n_best")] if n is not None else []
    columns += [Column("spans", shown=False)] if marks_spans else []
    columns += [Column(name, shown=False) for name in ("probabilities", *(() if of_texts else ("text",)))]
    main = "label" if of_texts else "text"
    form: Form = "table" if of_texts or n is not None else "lines"
    return Result(columns, rows(), main=main, form=form, hints={"batchwise": True})


def _spans(entities: Sequence[tuple[str, int, int]], sentence: "Sentence") -> list[dict[str, Any]]:
    """List entities: type, first word from 0 and the word after the last, and of a text the same of its characters."""
    spans: list[dict[str, Any]] = [{"type": name, "start": start, "stop": stop} for name, start, stop in entities]
    if sentence.text:
        for span, (first, last, _) in zip(spans, spans_of(entities, sentence.offsets), strict=True):
            span |= {"start_char": first, "end_char": last}
    return spans


_TOGETHER = 64  # sentences


@dataclass(frozen=True)
class TaggedSentence:
    n_best: list[dict[str, Any]]  # most probable tag sequences with their nats, best first
    probabilities: list[float]  # probability of each best tag, given the sentence

    @property
    def tags(self) -> list[str]:
        best: list[str] = self.n_best[0]["tags"]
        return best


def _tagged(run: "TagTask", model: "SequenceTagger", batch: "Batch", n: int) -> Iterator[TaggedSentence]:
    """Tag the sentences of a batch, in order."""
    from chainrule.state import map_state

    tags, device = run.vocabulary.tags, modes.device_of(model)
    assert batch.lengths is not None
    context, lengths = map_state(lambda part: part.to(device), batch.context), batch.lengths.to(device)
    with torch.no_grad():
        distribution = model(context, lengths)
        paths, log_probs = distribution.n_best(n)
        shares = distribution.marginals.gather(2, paths[:, 0].clamp_min(0).unsqueeze(2)).squeeze(2)
    for row, length in enumerate(lengths.tolist()):
        ways = zip(paths[row].tolist(), log_probs[row].tolist(), strict=True)
        best = [
            {"tags": [tags[tag] for tag in path[:length]], "nats": 0.0 - log_prob}  # no minus before a zero
            for path, log_prob in ways
            if log_prob > -torch.inf
        ]
        yield TaggedSentence(best, shares[row, :length].tolist())


@dataclass(frozen=True)
class TagEvaluation(CheckedOptions):
    """Compare a run's predictions with references, by the metrics of its task; these are the options of a tagger.

    `chainrule evaluate RUN --help` shows the options of RUN.

    Prints the accuracy of all words and of unseen words, nats per word, the most frequent confusions; and if the tags
    mark spans, entity F1 as conlleval counts it.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "Tagged sentences; - is standard input.",
    }

    column: str | None = None
    """Column of the tags; as in training by default."""
    repair: Switch = False
    """Replace impossible sequences of BIO tags by the nearest possible ones; as in training by default."""
    allow_unseen: Switch = False
    """Count words with a tag unseen in training as wrong; an error by default."""
    confusions: Annotated[int, Range(0, 1 << 30)] = 10
    """Number of confused tag pairs to show."""


def evaluate_tags(run: "TagTask", data: str | None, options: TagEvaluation, *, device: str) -> Result:
    from chainrule.metrics import entity_scores, tag_accuracy
    from chainrule_app.readers.tagged.prepare import check_tags_known, possible

    if data is None:
        raise OptionError("data", "expected a file of tagged sentences, got none")
    vocabulary = run.vocabulary
    file = sentences_of(run, data, tagged=True, column=options.column)
    repair, unmarked = options.repair or run.data.repair, run.facts.converted
    checked = possible(file.sentences, vocabulary.spelling, file.origin, repair=repair, unmarked=unmarked)
    sentences, mended = checked.sentences, checked.repaired
    if not options.allow_unseen:
        check_tags_known(
            sentences, vocabulary, file.origin, f"pass {option('allow_unseen')} to count such words as wrong"
        )
    if not any(sentence.words for sentence in sentences):
        raise ValueError(f"{file.name}: expected at least one sentence with words, got none")
    with_known_tags = [sentence for sentence in sentences if set(sentence.tags) <= set(vocabulary.tags)]
    model = run.model(device)
    untagged = tag_reader.number_sentences([replace(sentence, tags=()) for sentence in sentences], vocabulary)
    likely = tag_reader.number_sentences(with_known_tags, vocabulary)
    gold, predictions, total = [sentence.tags for sentence in sentences], list[list[str]](), Tally()

    def answer(part: "tuple[bool, Batch]") -> Answered:
        tagged, batch = part
        if not tagged:
            return [], (list(predicted_tags(model, [batch], vocabulary)), 0.0, 0)
        return [], ([], *likelihood_of(model, batch))

    def add(tags: list[list[str]], nats: float, words: int) -> None:
        predictions.extend(tags)
        total.add(nats, words)

    def evaluated() -> Iterator[Sequence[Any]]:
        both = ((False, untagged), (True, likely))
        parts = ((tagged, batch) for tagged, part in both for batch in tag_reader.tagged_evaluation(part))
        yield from run.answered(parts, answer, add)

    @cache
    def figures() -> dict[str, Any]:
        unknown = [[not vocabulary.word(word) for word in sentence.words] for sentence in sentences]
        accuracy = tag_accuracy(gold, predictions, unknown)
        found: dict[str, Any] = {
            "sentences": len(sentences),
            "words": accuracy.words,
            "repaired": mended,
            "accuracy": accuracy.accuracy,
            "unknown_words": accuracy.unknown_words,
            "unknown_accuracy": accuracy.unknown_accuracy if accuracy.unknown_words else None,
            "nats_per_word": total.nats / total.elements if total.elements else None,
            "confused": [
                {"true": true, "given": predicted, "words": count}
                for true, predicted, count in accuracy.confused[: options.confusions]
            ],
        }
        if vocabulary.scheme is not None:
            scores = asdict(entity_scores(*(list(map(vocabulary.standard, rows)) for rows in (gold, predictions))))
            by_type = {name: {"f1": f1, "entities": count} for name, (f1, count) in scores.pop("by_type").items()}
            found |= scores | {"by_type": by_type}
        return found

    notes = [f"{counted(mended, 'sentence')} had impossible tags and were repaired"] if mended else []
    notes += [f"{file.name}: the tags are in IOB1, and were read as BIO"] if checked.converted else []
    about, hints = {"measured": run.basis}, {"batchwise": True}
    return Result([], evaluated(), summary=figures, about=about, notes=lambda: notes, hints=hints)


@dataclass(frozen=True)
class TagInspection(CheckedOptions):
    """Look inside a trained tagger: its parts, its certainty of each tag, and its scores of neighbouring tags.

    Certainty is the probability of a word's predicted tag, given the whole sentence. Reads held-out sentences or DATA,
    which needs no tags.
    """

    ARGUMENTS: ClassVar[dict[str, str]] = {
        "data": "Sentences to read; held-out sentences by default; - is standard input.",
        "seed": "No effect: nothing is random.",
    }

    rows: Annotated[int, Range(1, 1 << 16)] = 256
    """Maximum number of sentences to read."""
    top: Annotated[int, Range(1, 1000)] = 8
    """Number of least certain words, and of pairs of neighbouring tags, to show."""


def inspect_tagger(run: "TagTask", data: str | None, options: TagInspection, *, seed: int) -> Report:
    from chainrule_app.pages.finding_pages import tag_page
    from chainrule_app.tasks.parts import parts_of

    model = run.model()
    sentences, words, source = _read(run, data, options.rows)
    figures = {
        "run": str(run.path),
        "model": run.config.model,
        "recipe": run.recipe,
        "parameters": parts_of(model),
        "read": {"source": source, "sentences": len(words), "words": sum(map(len, words))},
        **_certainty(model, sentences, words, run.vocabulary.tags, options.top),
        "neighbours": _neighbours(model, run.vocabulary.tags, options.top),
    }
    page = tag_page(figures, inside(run), inspect_again(run, data, rows=options.rows, top=options.top))
    return Report(figures, tuple(_lines(figures)), str(page))


def _read(run: "TagTask", data: str | None, rows: int) -> "tuple[TaggedSentences, list[list[str]], str]":
    """Return sentences as numbers and as words, and their source."""
    if data is None:
        corpus = run.corpus()
        return corpus.valid, corpus.valid_words[:rows], "held-out sentences"
    file = sentences_of(run, data, tagged=False)
    with_words = [sentence for sentence in file.sentences if sentence.words][:rows]
    if not with_words:
        raise ValueError(f"{file.name}: expected at least one sentence with words, got none")
    untagged = tag_reader.number_sentences([replace(sentence, tags=()) for sentence in with_words], run.vocabulary)
    return untagged, [list(sentence.words) for sentence in with_words], f"sentences of {file.name}"


def _certainty(
    model: "SequenceTagger", sentences: "TaggedSentences", words: list[list[str]], tags: tuple[str, ...], top: int
) -> dict[str, Any]:
    """Measure the probabilities of predicted tags: overall, by tag, and of the least certain words."""
    answers: list[tuple[float, int, int, float, str]] = []  # certainty, tag, second tag, its probability, word
    index = iter(words)
    for batch in tag_reader.tagged_evaluation(sentences, rows=np.arange(len(words))):
        assert batch.lengths is not None
        with torch.no_grad():
            answer = model(batch.context, batch.lengths)
            marginals, best = answer.marginals, answer.mode
        for row, length in enumerate(batch.lengths.tolist()):
            answers += _words_of(marginals[row, :length], best[row, :length], next(index))
    sure = np.array([word[0] for word in answers])
    predicted = np.array([word[1] for word in answers])
    return {
        "certainty": float(sure.mean()),
        "below_half": float((sure < 0.5).mean()),
        "tags": {
            name: {"words": int((predicted == tag).sum()), "certainty": float(sure[predicted == tag].mean())}
            for tag, name in enumerate(tags)
            if (predicted == tag).any()
        },
        "least_sure": [
            {"word": word, "tag": tags[tag], "probability": share, "or": tags[other], "its_probability": less}
            for share, tag, other, less, word in sorted(answers)[:top]
        ],
    }


def _words_of(marginals: "Tensor", best: "Tensor", words: list[str]) -> list[tuple[float, int, int, float, str]]:
    share = marginals.gather(1, best.unsqueeze(1)).squeeze(1)
    others = marginals.scatter(1, best.unsqueeze(1), -1.0).max(1)
    other = others.indices if marginals.shape[1] > 1 else best
    return list(
        zip(share.tolist(), best.tolist(), other.tolist(), others.values.clamp(min=0).tolist(), words, strict=True)
    )


def _neighbours(model: "SequenceTagger", tags: tuple[str, ...], top: int) -> dict[str, Any] | None:
    """Return the pairs of tags with the highest and lowest learnt scores; None without a CRF."""
    from chainrule.heads import LinearChainCRF

    if not isinstance(model.head, LinearChainCRF):
        return None
    forbidden = cast("Tensor | None", model.head.forbidden_transitions)
    scores = sorted(
        (score, tags[before], tags[after])
        for before, row in enumerate(model.head.transitions.tolist())
        for after, score in enumerate(row)
        if forbidden is None or not forbidden[before, after]
    )
    pairs = [{"tag": before, "next": after, "score": score} for score, before, after in scores]
    return {
        "forbidden": 0 if forbidden is None else int(forbidden.sum()),
        "favoured": pairs[::-1][:top],
        "avoided": pairs[:top],
    }


def _lines(figures: dict[str, Any]) -> Iterator[str]:
    parts, read = figures["parameters"], figures["read"]
    yield f"{figures['run']}: {figures['recipe']} with {counted(sum(parts.values()), 'parameter')}"
    yield "parts           " + ", ".join(f"{name} {count:,}" for name, count in parts.items())
    yield f"read            {read['sentences']:,} {read['source']}, {counted(read['words'], 'word')}"
    yield (
        f"certainty       {figures['certainty']:.2%} on average, below one half for {figures['below_half']:.2%} of the "
        "words"
    )
    rows = [(name, f"{row['words']:,}", f"{row['certainty']:.2%}") for name, row in figures["tags"].items()]
    yield from aligned([("tag", "words", "certainty"), *rows])
    yield "least sure of:"
    for word in figures["least_sure"]:
        other = f"{word['or']} {word['its_probability']:.1%}"
        yield f"  {word['word']} as {word['tag']} {word['probability']:.1%}, or {other}"
    neighbours = figures["neighbours"]
    if neighbours is None:
        yield f"neighbours: this softmax predicts each tag independently; {spelled('head', 'crf')} learns their order"
        return
    rule = f"; {counted(neighbours['forbidden'], 'pair')} forbidden" if neighbours["forbidden"] else ""
    yield f"neighbours by the score that the random field adds, nats{rule}:"
    for name in ("favoured", "avoided"):
        yield f"  {name:<9} " + ", ".join(
            f"{pair['tag']} {pair['next']} {pair['score']:+.2f}" for pair in neighbours[name]
        )
