"""Streams are scored in the symbols that training saw, and texts in memory each on its own."""

import inspect
import json
import math

import numpy as np
import pytest
import torch

from chainrule import load
from chainrule.data import BPEVocabulary, CharVocabulary, WordVocabulary
from chainrule.models import RecurrentLM
from chainrule_app.readers.corpus import open_corpus, prepare_corpus
from chainrule_app.tasks import open_run
from chainrule_app.tasks.text import scoring
from chainrule_app.tasks.text.scoring import read_stream, score_stream
from chainrule_app.tasks.text.surprise import Reader

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
    assert scores.top()["spot"][0] == max(spot for spot in scores["spot"] if spot is not None)


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
        (["line", None], "data index 1: expected rows of one kind, got None"),
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
        load(runs / "stream").score(pandas.DataFrame({"one": ["line 1"], "two": ["line 2"]}))


SOURCE = inspect.getsource(inspect)[:6000]  # indented code: most line ends are glued to the white space behind them


def vocabularies():
    pytest.importorskip("tokenizers")
    return [
        BPEVocabulary.fit([SOURCE], vocabulary_size=400),
        WordVocabulary.fit([SOURCE]),
        CharVocabulary.fit([SOURCE]),
    ]


@pytest.mark.parametrize("size", [7, 100, 10_000])
@pytest.mark.parametrize("index", range(3), ids=["bpe", "word", "char"])
def test_a_stream_is_scored_in_the_symbols_of_the_whole(index, size):
    vocabulary = vocabularies()[index]
    model = RecurrentLM(vocab_size=len(vocabulary), cell="gru", hidden_size=4).eval()
    whole = vocabulary.encode(SOURCE)
    scored = list(score_stream(Reader(model), vocabulary, [SOURCE[i : i + size] for i in range(0, len(SOURCE), size)]))
    assert np.array_equal(np.concatenate([piece.ids for piece in scored]), whole)
    assert "".join(piece.text for piece in scored) == SOURCE
    expected = -model.log_prob(torch.from_numpy(whole).unsqueeze(0)).item()
    assert sum(piece.nats.sum() for piece in scored) == pytest.approx(expected, rel=1e-5)  # float32, in chunks


def test_a_symbol_that_spans_lines_counts_for_the_line_in_which_it_begins():
    vocabulary = vocabularies()[0]
    ids, lines = vocabulary.encode_with_lines(SOURCE)
    place = 0
    for symbol, line in zip(ids.tolist(), lines.tolist(), strict=True):
        assert SOURCE.encode()[:place].count(b"\n") == line
        place += len(vocabulary.decode([symbol]).encode())
    assert place == len(SOURCE.encode())  # ASCII: every symbol decodes alone


def test_a_line_longer_than_the_buffer_is_not_cut_inside_a_word(tmp_path, monkeypatch):
    vocabulary = vocabularies()[1]
    monkeypatch.setattr(scoring, "_PIECE_BYTES", 64)
    text = SOURCE.replace("\n", " ")
    (tmp_path / "one-line.txt").write_text(text)
    model = RecurrentLM(vocab_size=len(vocabulary), hidden_size=1).eval()
    scored = score_stream(Reader(model), vocabulary, read_stream(str(tmp_path / "one-line.txt"), strict=True))
    assert np.array_equal(np.concatenate([piece.ids for piece in scored]), vocabulary.encode(text))


def test_scoring_the_training_file_gives_the_symbols_of_the_training_file(tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "code.py").write_text(SOURCE)
    (tmp_path / "held-out.py").write_text("def held_out():\n    return 0\n")
    prepare_corpus(
        tmp_path / "code.py", tmp_path / "data", level="bpe", vocabulary_size=400, validation=tmp_path / "held-out.py"
    )
    corpus = open_corpus(tmp_path / "data")
    model = RecurrentLM(vocab_size=len(corpus.vocabulary), hidden_size=1).eval()
    scored = score_stream(Reader(model), corpus.vocabulary, read_stream(str(tmp_path / "code.py"), strict=True))
    ids = np.concatenate([piece.ids for piece in scored])
    assert np.array_equal(ids, corpus.train.slice(0, len(corpus.train)))


def test_lines_of_subwords_add_up_to_the_file(command, new_run, tmp_path):
    pytest.importorskip("tokenizers")
    (tmp_path / "code.py").write_text(SOURCE)
    new_run(tmp_path / "code.py", tmp_path / "run", level="bpe")
    asked = ["score", tmp_path / "run", tmp_path / "code.py", "--json"]
    (total,) = map(json.loads, command(*asked).out.splitlines())
    rows = [json.loads(row) for row in command(*asked, "--per", "line").out.splitlines()]
    assert sum(row["nats"] for row in rows) == pytest.approx(total["nats"], rel=1e-12)
    assert sum(row["elements"] for row in rows) == total["elements"]
    lines = SOURCE.split("\n")
    assert all(row["text"] == lines[row["line"] - 1] for row in rows)
