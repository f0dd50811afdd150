"""Texts with several labels, from training to predictions."""

import json
import math

import pytest

import chainrule

WORDS = {"war": "drama", "kiss": "love", "joke": "comedy"}


def rows(count):
    """Yield texts of one, two or three words, each of which tells a label, and texts without."""
    for number in range(count):
        words = [word for bit, word in enumerate(WORDS) if number >> bit & 1]
        yield f"film {number} has {' and '.join(words) or 'nothing'}", [WORDS[word] for word in words]


@pytest.fixture(scope="session", params=["list", "separator"])
def files(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    for part, count in (("train", 48), ("test", 16)):
        if request.param == "list":
            lines = [json.dumps({"text": text, "labels": labels}) for text, labels in rows(count)]
            (folder / f"{part}.jsonl").write_text("\n".join(lines) + "\n")
        else:
            lines = ["text,labels", *(f"{text},{'; '.join(labels)}" for text, labels in rows(count))]
            (folder / f"{part}.csv").write_text("\n".join(lines) + "\n")
    suffix = "jsonl" if request.param == "list" else "csv"
    return folder / f"train.{suffix}", folder / f"test.{suffix}", {} if suffix == "jsonl" else {"label_separator": ";"}


def test_each_label_is_learnt_evaluated_and_predicted(files):
    train, test, options = files
    run = chainrule.fit(
        train, task="classify", steps=8, embedding_size=8, hidden_size=4, batch_size=16, validation=test, seed=0,
        **options,
    )  # fmt: skip
    figures = run.evaluate(test).summary
    assert figures["accuracy"] == figures["micro_f1"] == figures["macro_f1"] == 1
    assert set(figures["labels"]) == {"drama", "love", "comedy"}
    assert figures["labels"]["drama"]["texts"] == 8
    answers = run.classify(["a kiss and a joke", "a war", "nothing"])
    separator = "; " if options else ", "
    assert [label.replace(";", "; ").replace("  ", " ") for label in answers["label"]] == [
        separator.join(["comedy", "love"]), "drama", "",
    ]  # fmt: skip
    for shares, probability in zip(answers["probabilities"], answers["probability"], strict=True):
        assert probability == pytest.approx(math.prod(max(share, 1 - share) for share in shares.values()))
    nats = 0.0
    for shares, (_, labels) in zip(
        run.classify([text for text, _ in rows(16)])["probabilities"], rows(16), strict=True
    ):
        nats -= sum(math.log(share if name in labels else 1 - share) for name, share in shares.items())
    assert figures["nats_per_text"] == pytest.approx(nats / 16, abs=1e-5)
    with pytest.raises(ValueError, match="top: expected 1, because this run gives a text several labels"):
        run.classify(["a war"], top=2)
