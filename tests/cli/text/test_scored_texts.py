"""Texts in memory are scored each on its own."""

import math

import pytest
import torch

from chainrule import load
from chainrule._app.tasks import open_run

TEXTS = ["line 3 of the café log", "", "all is odd\nall is well", "line 3 of the café log", "☃"]


def reference(run, text):
    """-log p of a text by one forward pass over each of its sequences, and their symbols."""
    lines = [f"{line}\n" for line in text.split("\n")] if run.data.reading == "lines" else [text] * bool(text)
    rows = [torch.from_numpy(run.vocabulary.encode(line))[None] for line in lines]
    return sum(-run.model().log_prob(x).item() for x in rows), sum(x.shape[1] for x in rows)


@pytest.mark.parametrize("kind", ["stream", "lines", "words", "bytes"])
def test_each_text_is_scored_from_the_initial_state(runs, kind):
    task, scores = open_run(runs / kind), load(runs / kind).score(TEXTS)
    assert scores.names[:4] == ["text", "elements", "nats", "bits_per_element"]
    assert scores["text"] == TEXTS
    for text, row in zip(TEXTS, scores, strict=True):
        nats, elements = reference(task, text)
        assert row["nats"] == pytest.approx(nats, rel=1e-5)
        assert row["elements"] == elements
        assert row["bits_per_element"] == (pytest.approx(nats / elements / math.log(2), rel=1e-5) if elements else None)
    assert scores["nats"][0] == pytest.approx(scores["nats"][3], rel=1e-6)
    assert scores.summary["nats"] == pytest.approx(sum(scores["nats"]))
    assert scores.top()["excess"][0] == max(excess for excess in scores["excess"] if excess is not None)


@pytest.mark.parametrize("kind", ["stream", "lines"])
def test_the_elements_of_each_text_add_up_to_it(runs, kind):
    scores = load(runs / kind).score(TEXTS)
    elements = scores.per("element")
    for number, row in enumerate(scores):
        own = [element for element in elements if element["index"] == number]
        assert len(own) == row["elements"]
        assert sum(element["nats"] for element in own) == pytest.approx(row["nats"], rel=1e-9)
    assert "".join(elements["text"][:5]) == "line␣"
    assert scores.per("file").names == []
    assert scores.per("file").summary == scores.summary
    with pytest.raises(ValueError, match="per: expected one of line, element, file, got 'page'"):
        scores.per("page")


@pytest.mark.parametrize("kind", ["stream", "lines"])
def test_a_file_has_a_row_for_each_line_and_elements_on_demand(runs, text_file, kind):
    scores = load(runs / kind).score(text_file)
    lines = text_file.read_text(encoding="utf-8").splitlines()
    assert scores["text"] == lines
    elements = scores.per("element")
    assert sum(elements["nats"]) == pytest.approx(sum(scores["nats"]), rel=1e-9)
    assert load(runs / kind).score(text_file, per="file").summary == pytest.approx(scores.summary)


@pytest.mark.parametrize("kind", ["stream", "lines"])
def test_a_run_adapts_to_the_texts_it_has_scored(runs, kind):
    run, texts = load(runs / kind), ["line 1 of the café log, all is well"] * 40
    still, adapted = run.score(texts, adapt=True, adapt_rate=0.0), run.score(texts, adapt=True, adapt_rate=0.01)
    assert still["nats"] == pytest.approx(run.score(texts)["nats"], rel=1e-5)
    assert adapted["nats"][-1] < 0.95 * still["nats"][-1]
    assert len(run.score(["", "line"], adapt=True)) == 2


def test_strings_of_frames_are_scored(runs):
    pandas = pytest.importorskip("pandas")
    run, frame = load(runs / "stream"), pandas.DataFrame({"text": ["line 1", "line 2"]}, index=[5, 7])
    assert run.score(frame["text"])["nats"] == run.score(["line 1", "line 2"])["nats"]
    assert list(run.score(iter(["line 1"])).to_pandas()["text"]) == ["line 1"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([], "expected at least one row, got none"),
        ([""], "expected at least one symbol"),
        (["line", None], "data index 1: expected a path or strings, got None"),
        (3, "data: expected a path, a frame, .* got int"),
        (None, "data: expected a path, a frame, .* got NoneType"),
    ],
)
def test_invalid_data_raise(runs, data, said):
    with pytest.raises(ValueError, match=said):
        load(runs / "stream").score(data)


def test_a_frame_with_columns_is_refused(runs):
    pandas = pytest.importorskip("pandas")
    with pytest.raises(ValueError, match="pass one of its columns"):
        load(runs / "stream").score(pandas.DataFrame({"text": ["line 1"]}))
