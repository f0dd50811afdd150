"""Labelled texts on disk: what is fitted sees the training part alone, and nothing is lost or mixed up."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from chainrule_app.readers.labelled.encoded_texts import EncodedTexts, TextSymbols
from chainrule_app.readers.labelled.prepare import (
    Labels,
    labelled_batches,
    labelled_evaluation,
    open_labelled,
    prepare_labelled,
)


def rows(count: int = 40) -> str:
    return "".join(
        f"this is {'good' if n % 4 else 'bad'} thing {n}\t{'yes' if n % 4 else 'no'}\n" for n in range(count)
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "rows.tsv"
    path.write_text(rows(), encoding="utf-8")
    return path


def test_every_row_is_in_one_part_with_its_line_and_label(source: Path, tmp_path: Path) -> None:
    data = prepare_labelled(source, tmp_path / "data", validation_fraction=0.2)
    assert sorted([*data.train.lines, *data.valid.lines]) == list(range(1, 41))
    assert len(data.valid.lines) == 8
    for part in (data.train, data.valid):
        for line, label in zip(part.lines, part.labels, strict=True):
            assert data.labels.names[label] == ("yes" if (line - 1) % 4 else "no")
    lines = source.read_text().splitlines()
    assert [lines[line - 1].split("\t")[0] for line in data.valid.lines] == list(data.valid_texts)
    assert data.manifest["train"] == {"rows": 32, "elements": 160, "longest": 5, "empty": 0, "cut": 0}


def test_held_out_words_make_no_symbol(source: Path, tmp_path: Path) -> None:
    dev = tmp_path / "dev.tsv"
    dev.write_text("zebra zebra zebra\tyes\n", encoding="utf-8")
    data = prepare_labelled(source, tmp_path / "data", validation=dev, min_count=1)
    assert "zebra" not in data.symbols.symbols
    assert len(data.train.lines) == 40
    assert data.valid_texts == ("zebra zebra zebra",)


@pytest.mark.parametrize(("name", "dtype"), [("train.tokens", "<i4"), ("train.bags", "<i4"), ("valid.labels", "<i8")])
@pytest.mark.parametrize("number", [-1, 10**6])
def test_numbers_of_no_symbol_are_refused(source: Path, tmp_path: Path, name: str, dtype: str, number: int) -> None:
    prepare_labelled(source, tmp_path / "data")
    path = tmp_path / "data" / name
    array = np.fromfile(path, dtype)
    array[0] = number
    array.tofile(path)
    with pytest.raises(ValueError, match=rf"{name}: damaged .expected numbers from 0 to"):
        open_labelled(tmp_path / "data")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a b\tx\nc d\tx\ne\tx\n", "all 3 rows have the label 'x'"),
        ("a\tx\na\ty\na\tx\na\ty\n", "all 4 texts are equal"),
        ("".join(f"a {n}\tlabel {n}\n" for n in range(9)), "9 different labels in 9 rows"),
        ("a\tx\nb\ty\n", "too few rows: expected at least 2 to train on and one to hold out"),
    ],
)
def test_what_cannot_be_learnt_is_said(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        prepare_labelled(path, tmp_path / "data", label_column="2", text_column="1")


def test_a_held_out_label_that_was_never_trained_on_is_said_with_its_line(source: Path, tmp_path: Path) -> None:
    dev = tmp_path / "dev.tsv"
    dev.write_text("fine\tyes\nhm\tmaybe\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"dev.tsv line 2: the label 'maybe' was not seen in training .* no, yes"):
        prepare_labelled(source, tmp_path / "data", validation=dev)


def test_a_label_seen_once_is_trained_on(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text(rows(20) + "odd\trare\n", encoding="utf-8")
    for seed in range(5):
        data = prepare_labelled(path, tmp_path / "data", validation_fraction=0.5, seed=seed)
        assert data.labels.counts["rare"] == 1


def test_labels_that_are_numbers_stand_in_their_order() -> None:
    assert Labels.fit(["10", "9", "b", "-1"]).names == ("-1", "9", "10", "b")
    with pytest.raises(ValueError, match="damaged"):
        Labels.from_json({"format": 1, "counts": {"a": 0, "b": 1}})


def test_an_epoch_reads_every_row_once_in_batches_of_like_length(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text("".join(f"{'word ' * (n % 13)}{n}\t{n % 2}\n" for n in range(300)), encoding="utf-8")
    data = prepare_labelled(path, tmp_path / "data", validation_fraction=0.05)
    part = data.train
    batches = labelled_batches(part.texts, part.labels, 8, seed=3)
    assert batches.steps_per_epoch == len(part.labels) // 8
    seen = np.stack([batches._order.at(step) for step in range(2 * batches.steps_per_epoch)])
    assert [set(Counter(epoch.flatten().tolist()).values()) for epoch in np.split(seen, 2)] == [{1}, {1}]
    assert not np.array_equal(*np.split(seen, 2))
    spread = [int(np.ptp(part.texts.lengths[rows])) for rows in seen]
    assert np.mean(spread) < 2  # of lengths 1 to 13
    batch = batches.at(5)
    assert batch.whole
    assert torch.equal(batch.x, torch.from_numpy(part.labels[seen[5]].astype(np.int64)))


def test_evaluation_reads_every_row_in_order_and_cuts_the_long(source: Path, tmp_path: Path) -> None:
    part = prepare_labelled(source, tmp_path / "data").train
    batches = list(labelled_evaluation(part.texts, part.labels, 7, limit=3))
    assert torch.cat([batch.x for batch in batches]).tolist() == part.labels.tolist()
    assert {int(length) for batch in batches for length in batch.context["lengths"]} == {3}


def test_a_label_that_is_no_number_comes_after_numbers_whatever_the_order_of_the_file():
    for names in (["2", "nan", "0", "1"], ["0", "1", "2", "nan"], ["nan", "10", "2", "1", "0"]):
        assert Labels.fit(names).names[-1] == "nan"
        assert list(Labels.fit(names).names[:3]) == ["0", "1", "2"]


TEXTS = ["the cats sat", "the cat sat", "a cathedral", "the dog sat ."]


def test_words_are_split_from_punctuation_and_lowered() -> None:
    symbols = TextSymbols("word", ())
    assert symbols.tokens("It's GOOD, well-made (1.5)!") == [
        "it's", "good", ",", "well-made", "(", "1", ".", "5", ")", "!",
    ]  # fmt: skip
    assert TextSymbols("word", (), lower=False).tokens("So Good") == ["So", "Good"]


def test_a_word_is_itself_then_its_known_parts() -> None:
    symbols = TextSymbols.fit(TEXTS, "word", min_count=2)
    assert symbols.symbols == ("sat", "the")
    assert symbols.parts == ("<ca", "<cat", "cat")  # in cats, cat and cathedral
    assert symbols.encode("sat") == (1,)
    assert symbols.encode("cat") == (0, 3, 4, 5)
    assert symbols.encode("catty") == (0, 3, 4, 5)  # never seen, and read by its parts
    assert len(symbols) == 6


def test_without_ngrams_a_rare_word_is_unknown() -> None:
    symbols = TextSymbols.fit(TEXTS, "word", ngrams=False, min_count=2)
    assert [symbols.encode(word) for word in ("the", "cat")] == [(2,), (0,)]


def test_characters_and_bytes() -> None:
    symbols = TextSymbols.fit(["Aab"], "char", min_count=2)
    assert [symbols.encode(token) for token in symbols.tokens("aAb")] == [(1,), (1,), (0,)]
    symbols = TextSymbols.fit(["ignored"], "byte")
    assert len(symbols) == 256
    assert [symbols.encode(token)[0] for token in symbols.tokens("é\\\n~")] == list("é\\\n~".encode())


@pytest.mark.parametrize("level", ["word", "char", "byte"])
def test_what_is_written_is_read_again(level) -> None:
    symbols = TextSymbols.fit(TEXTS, level)
    again = TextSymbols.from_json(json.loads(json.dumps(symbols.to_json())))
    assert (again.symbols, again.parts, len(again)) == (symbols.symbols, symbols.parts, len(symbols))
    assert again.encode("c") == symbols.encode("c")


@pytest.mark.parametrize(
    "change",
    [
        {"level": "line"},
        {"symbols": ["a", "a"]},
        {"symbols": [1]},
        {"parts": "ab"},
        {"lower": 1},
        {"format": 2},
        {"x": 1},
    ],
)
def test_a_damaged_file_is_refused(change: dict) -> None:
    with pytest.raises(ValueError, match="the file is damaged"):
        TextSymbols.from_json({"format": 1, "level": "word", "lower": True, "symbols": ["a"], "parts": None} | change)


@given(
    st.lists(st.text(alphabet="abc d", max_size=12), min_size=1, max_size=8), st.sampled_from(["word", "char", "byte"])
)
def test_any_rows_hold_the_symbols_of_their_texts(texts: list[str], level) -> None:
    symbols = TextSymbols.fit(texts, level, min_count=1)
    encoded = EncodedTexts.of(texts, symbols)
    rows = np.arange(len(texts))[::-1].copy()
    context = encoded.context(rows, limit=5)
    for place, row in enumerate(rows.tolist()):
        bags = [symbols.encode(token) for token in symbols.tokens(texts[row])][:5]
        assert context["lengths"][place] == len(bags)
        for step, bag in enumerate(bags):
            held = context["inputs"][place, step].reshape(-1).tolist()
            assert tuple(symbol for symbol in held if symbol >= 0) == bag
        assert (context["inputs"][place, len(bags) :] == -1).all()
