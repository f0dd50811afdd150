"""Inside a trained tagger: its parts, how sure it is of each tag, and the scores of neighbouring tags."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from chainrule._app.heavy import np, torch
from chainrule._app.results import Report
from chainrule._app.tasks.config import CheckedOptions, within
from chainrule._app.tasks.display import aligned, counted
from chainrule._app.tasks.tag.tagging import sentences_of
from chainrule.data import _tagged

if TYPE_CHECKING:
    from torch import Tensor

    from chainrule._app.tasks.tag.task import TagTask
    from chainrule.data._tagged import TaggedSentences
    from chainrule.models import SequenceTagger


@dataclass(frozen=True)
class TagInspection(CheckedOptions):
    """Look inside a trained tagger: its parts, its certainty of each tag, and its scores of neighbouring tags.

    Certainty is the probability of a word's predicted tag, given the whole sentence. Reads held-out sentences or DATA,
    which needs no tags; writes no page.

    Args:
        data: Sentences to read; held-out sentences by default; - is standard input.
        seed: No effect: nothing is random.
    """

    rows: int = within(256, 1, 1 << 16)
    """Maximum number of sentences to read."""
    top: int = within(8, 1, 1000)
    """Number of least certain words, and of pairs of neighbouring tags, to show."""


def inspect_tagger(run: "TagTask", data: str | None, options: TagInspection, *, seed: int) -> Report:
    from chainrule.diagnostics._parts import parts_of

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
    return Report(figures, tuple(_lines(figures)))


def _read(run: "TagTask", data: str | None, rows: int) -> "tuple[TaggedSentences, list[list[str]], str]":
    """Return sentences as numbers and as words, and their source."""
    if data is None:
        corpus = run.corpus()
        return corpus.valid, corpus.valid_words[:rows], "held-out sentences"
    file = sentences_of(run, data, tagged=False)
    with_words = [sentence for sentence in file.sentences if sentence.words][:rows]
    if not with_words:
        raise ValueError(f"{file.name}: expected at least one sentence with words, got none")
    untagged = _tagged.number_sentences([replace(sentence, tags=()) for sentence in with_words], run.vocabulary)
    source = run.source_names.get(data, file.name)
    return untagged, [list(sentence.words) for sentence in with_words], f"sentences of {source}"


def _certainty(
    model: "SequenceTagger", sentences: "TaggedSentences", words: list[list[str]], tags: tuple[str, ...], top: int
) -> dict[str, Any]:
    """Measure the probabilities of predicted tags: overall, by tag, and of the least certain words."""
    answers: list[tuple[float, int, int, float, str]] = []  # certainty, tag, second tag, its probability, word
    index = iter(words)
    for batch in _tagged.tagged_evaluation(sentences, rows=np.arange(len(words))):
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
        yield "neighbours: this softmax predicts each tag independently; --head crf learns their order"
        return
    rule = f"; {counted(neighbours['forbidden'], 'pair')} forbidden" if neighbours["forbidden"] else ""
    yield f"neighbours by the score that the random field adds, nats{rule}:"
    for name in ("favoured", "avoided"):
        yield f"  {name:<9} " + ", ".join(
            f"{pair['tag']} {pair['next']} {pair['score']:+.2f}" for pair in neighbours[name]
        )
