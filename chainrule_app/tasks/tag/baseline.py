"""Tags of the held-out words by the most frequent tag of each word in training."""

from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any

from chainrule_app.heavy import np
from chainrule_app.tasks.baseline import Baseline

if TYPE_CHECKING:
    from chainrule_app.tasks.tag.task import TagTask

_TOGETHER = 128  # sentences


def usual_tags(run: "TagTask", model: Any, seconds: float) -> Baseline:
    """Compare with the most frequent tag of each word; for an unknown word, of all words."""
    corpus, metric = run.corpus(), run.validation_metric()
    train, valid, tags = corpus.train, corpus.valid, corpus.vocabulary.tags
    counts: Counter[Any] = Counter(zip(train.words.tolist(), train.tags.tolist(), strict=True))
    usual: dict[int, int] = {word: tag for (word, tag), _ in reversed(counts.most_common())}
    most = int(np.bincount(train.tags).argmax())
    rows, began = np.random.default_rng(0).permutation(metric.rows), monotonic()
    answers: list[Any] = []
    while len(answers) < len(rows) and (not answers or monotonic() - began < seconds):
        answers += metric.answer(model, rows[len(answers) : len(answers) + _TOGETHER])
    rows = rows[: len(answers)]
    words = [valid.words[valid.starts[row] : valid.starts[row + 1]].tolist() for row in rows]
    simple = [[tags[usual.get(int(word), most)] for word in sentence] for sentence in words]
    value, own = (metric.compare(rows, predicted, 0).value for predicted in (simple, answers))
    return Baseline("most frequent tag of each word", value, own, run.metric_name, higher_is_better=True)
