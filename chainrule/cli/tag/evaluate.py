"""`chainrule evaluate RUN DATA` on a run of a tagger."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from chainrule.tasks.display import dump_json

if TYPE_CHECKING:
    from chainrule.data.tagged import Sentence, TaggedVocabulary
    from chainrule.models import SequenceTagger


def evaluate(
    run: Path,
    data: Annotated[str, Parameter(allow_leading_hyphen=True)],
    /,
    *,
    column: str | None = None,
    repair: Annotated[bool, Parameter(negative=())] = False,
    allow_unseen: Annotated[bool, Parameter(negative=())] = False,
    confusions: int = 10,
    json: Annotated[bool, Parameter(negative=())] = False,
    device: str = "auto",
) -> None:
    """Compare a run's answers with the right ones, by its task's own metrics; shown are the options of a tagger.

    `chainrule evaluate RUN --help` shows those of RUN.

    Accuracy of all words and of those never seen in training, nats per word, the most frequent confusions; and where
    the tags mark spans, entity F1 as conlleval counts it.

    Args:
        run: The run directory.
        data: Tagged sentences; - is standard input.
        column: Of the tags; that of training if not given.
        repair: Read impossible sequences of BIO tags as the nearest possible ones, in place of refusing them.
        allow_unseen: Count words whose tag was never seen in training as wrong, in place of refusing them.
        confusions: So many pairs of a true tag and a wrong one.
        json: Print the figures as one JSON object.
        device: Where to compute: auto, cpu or cuda.
    """
    from chainrule.cli.tag.reading import sentences_of
    from chainrule.data.tagged import number_sentences, tagged_evaluation
    from chainrule.data.tagged.prepare import check_tags_known, possible
    from chainrule.metrics.tag_accuracy import tag_accuracy
    from chainrule.runs.tag import TagRun
    from chainrule.runs.tag_judge import predicted_tags
    from chainrule.training.parallel import choose_device

    if confusions < 0:
        raise ValueError(f"--confusions: expected a whole number >= 0, got {confusions}")
    opened = TagRun.open(run)
    vocabulary = opened.vocabulary
    file = sentences_of(opened, data, tagged=True, column=column)
    sentences, mended = possible(file.sentences, vocabulary.scheme, file.name, repair=repair)
    if not allow_unseen:
        check_tags_known(sentences, vocabulary, f"{file.name}", "say --allow-unseen to count such words as wrong")
    if not any(sentence.words for sentence in sentences):
        raise ValueError(f"{file.name}: expected at least one sentence with words, got none")
    known = [sentence for sentence in sentences if set(sentence.tags) <= set(vocabulary.tags)]
    model = opened.model(choose_device(device))
    untagged = number_sentences([_without_tags(sentence) for sentence in sentences], vocabulary)
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
            {"true": true, "given": given, "words": count} for true, given, count in accuracy.confused[:confusions]
        ],
    }
    if vocabulary.scheme is not None:
        from chainrule.metrics.entities import entity_scores

        scores = asdict(entity_scores(gold, found))
        by_type = {name: {"f1": f1, "entities": count} for name, (f1, count) in scores.pop("by_type").items()}
        figures |= scores | {"by_type": by_type}
    if json:
        print(dump_json(figures))
        return
    _show(figures)
    if mended:
        print(f"{mended:,} sentences had impossible tags and were repaired", file=sys.stderr)


def _without_tags(sentence: "Sentence") -> "Sentence":
    from dataclasses import replace

    return replace(sentence, tags=())


def _nats_per_word(
    model: "SequenceTagger", sentences: Sequence["Sentence"], vocabulary: "TaggedVocabulary"
) -> float | None:
    """Of the sentences whose tags are all known; None where there are none."""
    from chainrule.data.tagged import number_sentences, tagged_evaluation
    from chainrule.training.evaluate import evaluate

    if not any(sentence.words for sentence in sentences):
        return None
    return evaluate(model, tagged_evaluation(number_sentences(sentences, vocabulary))).nats_per_element


def _show(figures: dict[str, Any]) -> None:
    print(
        f"accuracy        {figures['accuracy']:.2%} of {figures['words']:,} words in {figures['sentences']:,} sentences"
    )
    if figures["unknown_words"]:
        share = figures["unknown_words"] / figures["words"]
        print(
            f"unknown words   {figures['unknown_accuracy']:.2%} of {figures['unknown_words']:,} ({share:.1%} of all), "
            "never seen in training"
        )
    if figures["nats_per_word"] is not None:
        print(f"nats per word   {figures['nats_per_word']:.4f}")
    if "f1" in figures:
        parts = f"precision {figures['precision']:.2%}, recall {figures['recall']:.2%}"
        print(f"entity F1       {figures['f1']:.2%} ({parts}) of {figures['entities']:,} entities")
        for name, scores in figures["by_type"].items():
            print(f"  {name:<20} {scores['f1']:>7.2%} of {scores['entities']:,}")
    if figures["confused"]:
        width = max(len(pair["true"]) for pair in figures["confused"])
        print("most confused, the true tag first:")
        for pair in figures["confused"]:
            print(f"  {pair['true']:<{width}} as {pair['given']:<{width}} {pair['words']:>6,}")
