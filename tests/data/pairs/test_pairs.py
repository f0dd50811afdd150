"""Pairs of sentences become numbers and batches; what does not fit together is refused in one line."""

import gzip
import json

import numpy as np
import pytest

from chainrule_app.readers.origin import HeldRows, Origin
from chainrule_app.readers.pairs import (
    Pair,
    held_out_texts,
    open_pairs,
    pair_batches,
    pair_evaluation,
    prepare_pairs,
    read_pairs,
    read_sentences,
)

WORDS = ["eins", "zwei", "drei", "vier", "fünf"]


def lines(count=40, seed=0):
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(WORDS, random.integers(1, 8))) for _ in range(count)]


def written(path, rows, packed=False):
    raw = "".join(f"{row}\n" for row in rows).encode()
    path.write_bytes(gzip.compress(raw) if packed else raw)
    return path


def texts(vocabulary, sentences):
    rows = [sentences.row(place) for place in range(len(sentences))]
    assert all(row[-1] == vocabulary.eos for row in rows)
    return [vocabulary.decode(row[:-1]) for row in rows]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("level", ["word", "bpe"])
def test_two_files_or_one_give_the_same_pairs_and_their_text_again(tmp_path, level, packed):
    sources, targets = lines(), [line.upper() for line in lines()]
    targets[3] = sources[5] = ""  # kept
    two = (written(tmp_path / "a", sources, packed), written(tmp_path / "b", targets, packed))
    one = written(tmp_path / "c.tsv", [f"{a}\t{b}" for a, b in zip(sources, targets, strict=True)], packed)
    options = {"level": level, "min_count": 1, "validation_source": one}
    pairs = prepare_pairs(tmp_path / "two", *two, **options)
    again = prepare_pairs(tmp_path / "one", one, **options)
    for prepared in (pairs, again, open_pairs(tmp_path / "two")):
        assert texts(prepared.source_vocabulary, prepared.train.source) == sources
        assert texts(prepared.target_vocabulary, prepared.train.target) == targets
        assert texts(prepared.target_vocabulary, prepared.valid.target) == targets
    assert held_out_texts(tmp_path / "two") == (sources, targets)


def test_vocabularies_are_those_of_the_training_pairs_alone(tmp_path):
    train, dev = written(tmp_path / "t", ["a a\tx x"] * 3), written(tmp_path / "d", ["a b\tx y"])
    pairs = prepare_pairs(tmp_path / "data", train, validation_source=dev)
    assert pairs.source_vocabulary.words == ["a"]
    assert texts(pairs.target_vocabulary, pairs.valid.target) == ["x <unk>"]
    assert (pairs.manifest["valid"]["target_unknown"], pairs.manifest["train"]["target_longest"]) == (1, 3)
    drawn = prepare_pairs(tmp_path / "drawn", written(tmp_path / "u", [f"w{n}\tv{n}" for n in range(40)]), min_count=1)
    assert (len(drawn.train), len(drawn.valid)) == (36, 4)
    held = texts(drawn.source_vocabulary, drawn.valid.source)
    assert held == ["<unk>"] * 4  # held out, so never seen


def test_an_epoch_reads_every_pair_once(tmp_path):
    file = written(tmp_path / "p", [f"s{n} {line}\tt{n} {line}" for n, line in enumerate(lines(40))])
    pairs = prepare_pairs(tmp_path / "data", file, validation_source=file, min_count=1).train
    whole = pair_batches(pairs, batch_size=8, seed=3)

    epochs = []
    for epoch in range(2):
        seen = []
        for step in range(epoch * 5, epoch * 5 + 5):
            batch = whole.at(step)

            assert (batch.lengths == batch.context["lengths"]).all()  # they are translations of each other here
            seen += [tuple(row[:length].tolist()) for row, length in zip(batch.x, batch.lengths, strict=True)]
        epochs.append(seen)
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert len(set(epochs[0])) == 40
    assert epochs[0] != epochs[1]
    in_order = [batch.x.shape[0] for batch in pair_evaluation(pairs, 16)]
    assert in_order == [16, 16, 8]


def test_pairs_of_like_length_are_side_by_side(tmp_path):
    file = written(tmp_path / "p", [f"{line}\t{line}" for line in lines(400)])
    pairs = prepare_pairs(tmp_path / "data", file, validation_source=file).train
    batches = [pair_batches(pairs, batch_size=8).at(step) for step in range(50)]
    padded = sum(batch.x.numel() for batch in batches)
    assert padded < 1.1 * sum(int(batch.lengths.sum()) for batch in batches)


def test_lines_end_where_they_end_and_lose_the_blanks_around_them(tmp_path):
    path = tmp_path / "p.tsv"
    path.write_bytes(b"  ein \t one\r\n\t\r\nzwei\ttwo")
    assert [(pair.line, pair.source, pair.target) for pair in read_pairs(path)] == [
        (1, "ein", "one"),
        (2, "", ""),
        (3, "zwei", "two"),
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["a\tb", "c"], r"p line 2: expected a source, a tab and a target, got one column"),
        (["a\tb\tc"], r"p line 1: .* got 3 columns"),
        (["a\tb", " ".join(["c"] * 9) + "\td"], r"p line 2: expected at most 8 symbols, got 9: split the sentence"),
    ],
)
def test_a_line_that_does_not_fit_is_named(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        prepare_pairs(tmp_path / "data", written(tmp_path / "p", rows), validation_source=tmp_path / "p", max_length=8)


def test_files_that_do_not_fit_are_named(tmp_path):
    short, long = written(tmp_path / "a", ["x"] * 3), written(tmp_path / "b", ["y"] * 5)
    with pytest.raises(ValueError, match=r"a has 3 lines and .*b has 5: line n of one"):
        list(read_pairs(short, long))
    with pytest.raises(ValueError, match=r"b has 5 lines and .*a has 3"):
        list(read_pairs(long, short))
    with pytest.raises(FileNotFoundError, match="none: no such file"):
        list(read_pairs(short, tmp_path / "none"))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b"x\ty\n" * 1000)[:-9])
    with pytest.raises(ValueError, match=r"cut\.gz: cannot be read .*restore it from a copy"):
        list(read_sentences(cut))
    with pytest.raises(ValueError, match="e: expected text, got an empty file"):
        list(read_pairs(written(tmp_path / "e", [])))
    with pytest.raises(ValueError, match=r"p: expected at least one pair to .*, got none: add pairs"):
        prepare_pairs(tmp_path / "data", written(tmp_path / "p", ["a\tb"]))


def test_rows_in_memory_that_are_no_pairs_are_named():
    assert list(read_pairs(HeldRows(Origin("data", "index"), [("a", "b")]))) == [Pair(0, "a", "b")]
    for row in (("a",), ("a", "b", "c")):
        with pytest.raises(ValueError, match=f"data index 1: expected a source and a target, got {len(row)} texts"):
            list(read_pairs(HeldRows(Origin("data", "index"), [("a", "b"), row])))


def test_what_was_changed_on_the_disk_is_noticed(tmp_path):
    file = written(tmp_path / "p", ["a b\tc d"] * 4)
    prepare_pairs(tmp_path / "data", file, validation_source=file)
    symbols = tmp_path / "data" / "train.source.symbols"
    symbols.write_bytes(np.full(12, 99, dtype="<i4").tobytes())
    with pytest.raises(ValueError, match=r"train\.source\.symbols: damaged \(expected numbers from 0"):
        open_pairs(tmp_path / "data")
    prepare_pairs(tmp_path / "data", file, validation_source=file)
    manifest = tmp_path / "data" / "pairs.json"
    content = json.loads(manifest.read_text())
    content["train"]["pairs"] = None  # the two sides would not be compared
    manifest.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"train\.pairs: expected a whole number, got None"):
        open_pairs(tmp_path / "data")


def test_held_out_texts_that_do_not_pair_are_refused(tmp_path):
    file = written(tmp_path / "p", ["one two\teins zwei", "three\tdrei"])
    prepare_pairs(tmp_path / "data", file, validation_source=file)
    assert held_out_texts(tmp_path / "data") == (["one two", "three"], ["eins zwei", "drei"])
    text = tmp_path / "data" / "valid.source.text"
    for content in (b"one_two three\n", b"one\xff two\nthree\n"[:14]):
        text.write_bytes(content)
        with pytest.raises(ValueError, match=r"valid\.source\.text: damaged"):
            held_out_texts(tmp_path / "data")
