"""A stream is scored in the symbols that training saw, however the file is read."""

import inspect
import json

import numpy as np
import pytest
import torch

from chainrule._app.tasks.text import scoring
from chainrule._app.tasks.text.scoring import read_stream, score_stream
from chainrule.data import BPEVocabulary, CharVocabulary, WordVocabulary, open_corpus, prepare_corpus
from chainrule.models import RecurrentLM

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
    scored = list(score_stream(model, vocabulary, [SOURCE[i : i + size] for i in range(0, len(SOURCE), size)]))
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
    scored = score_stream(model, vocabulary, read_stream(str(tmp_path / "one-line.txt"), strict=True))
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
    scored = score_stream(model, corpus.vocabulary, read_stream(str(tmp_path / "code.py"), strict=True))
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
