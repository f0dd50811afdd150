"""The order of rows, their parts, and rows of unequal length."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.data import BPEVocabulary, ByteVocabulary, CharVocabulary, Shuffled, WordVocabulary
from chainrule_app.readers.ragged import Ragged
from chainrule_app.readers.row_order import in_order
from chainrule_app.readers.store import Store, StoreWriter
from chainrule_app.tasks.text.spans import symbol_spans

LENGTHS = np.random.default_rng(0).integers(1, 40, size=203)
SORTED = {"sort": Shuffled.by_length(LENGTHS), "pool": 6}
FORMS = {"plain": {}, "sorted": SORTED, "within pools": SORTED | {"within_pool": True}}


def shuffled(form="plain", batch_size=4, seed=1, shard=(0, 1), **options):
    return Shuffled(len(LENGTHS), batch_size, seed, shard, **FORMS[form] | options)


def epoch(rows, number):
    return np.stack([rows.at(number * rows.steps_per_epoch + place) for place in range(rows.steps_per_epoch)])


@pytest.mark.parametrize("form", FORMS)
def test_each_epoch_reads_every_row_once_but_the_last_in_another_order(form):
    rows = shuffled(form)
    assert rows.steps_per_epoch == 50
    epochs = [epoch(rows, number) for number in range(4)]
    for read in epochs:
        assert read.shape == (50, 4)
        assert set(Counter(read.flatten().tolist()).values()) == {1}
    assert len({frozenset(range(203)) - set(read.flatten().tolist()) for read in epochs}) > 1
    assert not np.array_equal(epochs[0], epochs[1])


@pytest.mark.parametrize("form", FORMS)
def test_any_step_can_be_asked_first_and_the_seed_and_the_stream_decide(form):
    rows, other = shuffled(form), shuffled(form)
    for step in (131, 3, 77, 4):
        assert np.array_equal(rows.at(step), other.at(step))
    for options in ({"seed": 2}, {"stream": (7,)}):
        assert not np.array_equal(epoch(shuffled(form, **options), 0), epoch(rows, 0))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("world", [2, 4])
def test_processes_share_the_rows_of_one_batch(form, world):
    whole = shuffled(form)
    for step in (0, 61):
        parts = [shuffled(form, shard=(rank, world)) for rank in range(world)]
        shares = [part.own(part.at(step)) for part in parts]
        assert np.array_equal(np.stack(shares, 1).flatten(), whole.at(step))


@pytest.mark.parametrize("form", ["sorted", "within pools"])
def test_sorted_rows_of_similar_length_share_a_batch_and_batches_come_in_any_order(form):
    read = LENGTHS[epoch(shuffled(form), 0)]
    assert np.ptp(read, axis=1).mean() < 10 < 15 < np.ptp(LENGTHS[epoch(shuffled(), 0)], axis=1).mean()
    assert abs(np.corrcoef(np.arange(len(read)), read.mean(1))[0, 1]) < 0.5


def test_batches_shuffled_within_their_pool_stay_in_it():
    pools = [set(epoch(shuffled("within pools"), 0)[start : start + 6].flatten().tolist()) for start in (0, 6)]
    order = np.random.default_rng([1, 0]).permutation(len(LENGTHS))
    assert pools == [set(order[:24].tolist()), set(order[24:48].tolist())]
    assert set(epoch(shuffled("sorted"), 0)[:6].flatten().tolist()) != pools[0]


def test_few_rows_are_one_batch_and_fewer_than_processes_are_refused():
    rows = Shuffled(7, 64, 0, (0, 2))
    assert (rows.batch_size, rows.steps_per_epoch) == (6, 1)
    with pytest.raises(ValueError, match="clips: expected at least 8, one for each process, got 7"):
        Shuffled(7, 64, 0, (0, 8), name="clips")
    with pytest.raises(ValueError, match="seed: expected at least 0"):
        Shuffled(7, 2, -1, (0, 1))
    with pytest.raises(ValueError, match="batch_size: expected a positive multiple"):
        Shuffled(7, 3, 0, (0, 2))


def test_evaluation_reads_rows_in_order():
    assert [rows.tolist() for rows in in_order(5, 2)] == [[0, 1], [2, 3], [4]]
    assert [rows.tolist() for rows in in_order(5, 2, np.array([4, 0, 3]))] == [[4, 0], [3]]
    assert list(in_order(0, 2)) == []


ROWS = st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=6)


@given(ROWS, st.none() | st.integers(1, 4), st.data())
def test_padded_rows_are_the_rows_chosen(rows, limit, data):
    ragged = Ragged.of(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6))
    x, lengths = ragged.padded(np.array(chosen, dtype=np.int64), limit, fill=-1)
    expected = [rows[row][:limit] for row in chosen]
    assert x.shape == (len(chosen), max(map(len, expected), default=0))
    assert [row[:length] for row, length in zip(x.tolist(), lengths.tolist(), strict=True)] == expected
    assert all(value == -1 for row, length in zip(x, lengths, strict=True) for value in row[length:])


def test_rows_come_back_from_the_disk_and_damage_is_named(tmp_path):
    with StoreWriter(tmp_path, "data.json") as writer:
        Ragged.of([[1, 2], [], [9]]).save(writer, "values", "offsets")
        writer.finish({})
    store = Store(tmp_path, "data.json", "rows")
    assert [Ragged.load(store, "values", "offsets", 10).row(row).tolist() for row in range(3)] == [[1, 2], [], [9]]
    with pytest.raises(ValueError, match=r"values: damaged .expected numbers from 0 to 8"):
        Ragged.load(store, "values", "offsets", 9)
    with pytest.raises(ValueError, match="offsets: damaged"):
        Ragged.load(store, "values", "offsets", 10, shortest=1)


def pieces(vocabulary, ids) -> list[str]:
    text, spans = symbol_spans(vocabulary, ids)
    return [text[start:stop] for start, stop in spans]


def test_characters_and_words_stand_where_they_are():
    vocabulary = CharVocabulary("ab\n", eos=True)
    assert pieces(vocabulary, vocabulary.encode("ab?\n")) == ["a", "b", "\N{REPLACEMENT CHARACTER}", "\n"]
    words = WordVocabulary(["the", "cat"])
    assert pieces(words, words.encode("the cat sat\n\nthe")) == ["the", "cat", "<unk>", "\n", "\n", "the"]


def test_bytes_of_one_character_share_it():
    vocabulary = ByteVocabulary()
    assert pieces(vocabulary, vocabulary.encode("aé😀b")) == ["a", "é", "é", "😀", "😀", "😀", "😀", "b"]


def test_pieces_of_words_keep_their_space():
    pytest.importorskip("tokenizers")
    vocabulary = BPEVocabulary([("t", "h"), ("th", "e")])
    assert pieces(vocabulary, vocabulary.encode("the the")) == ["the", " ", "the"]


@given(st.binary(max_size=40))
def test_any_bytes_have_a_place(raw):
    text, spans = symbol_spans(ByteVocabulary(), list(raw))
    assert text == raw.decode("utf-8", "replace")
    assert all(0 <= start < stop <= len(text) for start, stop in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_text_as_bytes_puts_each_byte_at_its_character(text):
    _, spans = symbol_spans(ByteVocabulary(), list(text.encode()))
    assert spans == [(place, place + 1) for place, character in enumerate(text) for _ in character.encode()]
