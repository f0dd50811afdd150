"""The tags of a tagger compared with the right ones."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from chainrule._app.results import Result
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.display import Switch, counted
from chainrule._app.tasks.tag.tagging import sentences_of

if TYPE_CHECKING:
    from chainrule._app.tasks.tag.task import TagTask
    from chainrule.data._tagged import Sentence, TaggedVocabulary
    from chainrule.models import SequenceTagger


@dataclass(frozen=True)
class TagEvaluation(CheckedOptions):
    """Compare a run's answers with the right ones, by its task's own metrics; shown are the options of a tagger.

    `chainrule evaluate RUN --help` shows those of RUN.

    Accuracy of all words and of those never seen in training, nats per word, the most frequent confusions; and where
    the tags mark spans, entity F1 as conlleval counts it.

    Args:
        data: Tagged sentences; - is standard input.
    """

    column: str | None = None
    """Column of the tags; that of training if not given."""
    repair: Switch = False
    """Read impossible sequences of BIO tags as the nearest possible ones, in place of refusing them."""
    allow_unseen: Switch = False
    """Count words whose tag was never seen in training as wrong, in place of refusing them."""
    confusions: int = within(10, 0, 1 << 30)
    """Number of pairs of a true and a wrong tag to show."""


def evaluate_tags(run: "TagTask", data: str | None, options: TagEvaluation, *, device: str) -> Result:
    """Evaluate a run on a file."""
    from chainrule._app.tasks.tag.validation_metric import predicted_tags
    from chainrule.data._tagged import number_sentences, tagged_evaluation
    from chainrule.data._tagged.prepare import check_tags_known, possible
    from chainrule.metrics import tag_accuracy

    if data is None:
        raise ValueError("DATA: expected a file of tagged sentences, got none")
    vocabulary = run.vocabulary
    file = sentences_of(run, data, tagged=True, column=options.column)
    sentences, mended = possible(file.sentences, vocabulary.spelling, file.name, repair=options.repair)
    if not options.allow_unseen:
        check_tags_known(sentences, vocabulary, f"{file.name}", "say --allow-unseen to count such words as wrong")
    if not any(sentence.words for sentence in sentences):
        raise ValueError(f"{file.name}: expected at least one sentence with words, got none")
    known = [sentence for sentence in sentences if set(sentence.tags) <= set(vocabulary.tags)]
    model = run.model(device)
    untagged = number_sentences([replace(sentence, tags=()) for sentence in sentences], vocabulary)
    gold = [sentence.tags for sentence in sentences]
    found = list(predicted_tags(model, tagged_evaluation(untagged), vocabulary))
    unknown = [[not vocabulary.word(word) for word in sentence.words] for sentence in sentences]
    accuracy = tag_accuracy(gold, found, unknown)
    figures: dict[str, Any] = {
        "sentences": len(sentences),
        "words": accuracy.words,
        "repaired": mended,
        "accuracy": accuracy.accuracy,
        "unknown_words": accuracy.unknown_words,
        "unknown_accuracy": accuracy.unknown_accuracy if accuracy.unknown_words else None,
        "nats_per_word": _nats_per_word(model, known, vocabulary),
        "confused": [
            {"true": true, "given": given, "words": count}
            for true, given, count in accuracy.confused[: options.confusions]
        ],
    }
    if vocabulary.scheme is not None:
        from chainrule.metrics import entity_scores

        scores = asdict(entity_scores(*(list(map(vocabulary.standard, rows)) for rows in (gold, found))))
        by_type = {name: {"f1": f1, "entities": count} for name, (f1, count) in scores.pop("by_type").items()}
        figures |= scores | {"by_type": by_type}
    notes = [f"{counted(mended, 'sentence')} had impossible tags and were repaired"] if mended else []
    return Result([], [], summary=lambda: figures, about={"measured": run.basis}, notes=lambda: notes)


def _nats_per_word(
    model: "SequenceTagger", sentences: Sequence["Sentence"], vocabulary: "TaggedVocabulary"
) -> float | None:
    """Mean over the sentences whose tags are all known; None without any."""
    from chainrule.data._tagged import number_sentences, tagged_evaluation
    from chainrule.training import evaluate

    if not any(sentence.words for sentence in sentences):
        return None
    return evaluate(model, tagged_evaluation(number_sentences(sentences, vocabulary))).nats_per_element
