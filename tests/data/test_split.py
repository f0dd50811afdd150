import hashlib
import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule_app.readers.corpus import split_position
from chainrule_app.readers.held_out import hold_out
from chainrule_app.readers.pairs import prepare_pairs
from chainrule_app.readers.sources import Pass, Source
from chainrule_app.readers.tables.prepare import prepare_table


def source(raw: bytes) -> Source:
    return Source("x", "x", len(raw), lambda: io.BytesIO(raw))


def parts(raw: bytes, fraction: float, **options: bool) -> tuple[str, str]:
    text = source(raw)
    reading = Pass(text, text.open())
    cut = split_position(text, text.open(), fraction, **options)
    train, valid = "".join(reading.text(cut)), "".join(reading.text(len(raw)))
    assert reading.fingerprint() == {"name": "x", "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    return train, valid


@given(st.text(alphabet="aé科\n\r", min_size=2).map(str.encode), st.floats(0.01, 0.99))
def test_the_parts_are_the_whole_and_neither_is_empty(raw, fraction):
    train, valid = parts(raw, fraction, at_line_end=False)
    text = raw.decode()
    old_ends = "\n" not in text and "\r" in text[:-1]  # lines that end in carriage returns
    assert train + valid == (text.replace("\r", "\n") if old_ends else text)
    assert train
    assert valid


@given(
    st.lists(st.text(alphabet="aé科\r"), min_size=2).map(lambda lines: "\n".join(lines) + "\n"), st.floats(0.01, 0.99)
)
def test_lines_stay_whole_and_the_cut_is_the_nearest_line_end(text, fraction):
    raw = text.encode()
    train, _ = parts(raw, fraction, at_line_end=True)
    ends = [i + 1 for i, byte in enumerate(raw[:-1]) if byte == 10]
    target = min(max(round(len(raw) * (1 - fraction)), 1), len(raw) - 1)
    assert abs(len(train.encode()) - target) == min(abs(end - target) for end in ends)
    assert train.endswith("\n")


def test_a_stream_whose_lines_are_too_long_is_cut_between_characters():
    _, valid = parts(("a\n" + "科" * 1000).encode(), 0.1, at_line_end=False)
    assert 90 <= len(valid) <= 110
    assert set(valid) == {"科"}


def test_line_ends_far_from_the_target_are_found():
    raw = b"a\n" + b"x" * 3_000_000 + b"\n" + b"y" * 3_000_000
    assert len(parts(raw, 0.6, at_line_end=True)[0]) == 3_000_003
    assert len(parts(raw, 0.4, at_line_end=True)[0]) == 3_000_003


@pytest.mark.parametrize(("text", "what"), [("one line\n", "lines"), ("one line", "lines"), ("科", "characters")])
def test_one_line_or_character_cannot_be_shared_out(text, what):
    with pytest.raises(ValueError, match=f"at least two {what}"):
        parts(text.encode(), 0.5, at_line_end=what == "lines")


def test_an_error_in_the_held_out_part_tells_its_place_in_the_file():
    raw = b"line\n" * 100 + b"ab\xff\n"
    text = source(raw)
    reading = Pass(text, text.open())
    list(reading.text(split_position(text, text.open(), 0.1, at_line_end=True)))
    with pytest.raises(ValueError, match=r"byte 502 \(line 101\)"):
        list(reading.text(len(raw)))


@pytest.mark.parametrize("fraction", [0.4, 0.3, 0.22, 0.1])
def test_the_share_held_out_is_what_was_asked(tmp_path, fraction):
    (tmp_path / "rows.csv").write_text("a,b\n" + "".join(f"{row % 7},{row % 3}\n" for row in range(1000)))
    (tmp_path / "pairs.tsv").write_text("a b\tc d\n" * 1000)
    table = prepare_table(tmp_path / "rows.csv", tmp_path / "table", validation_fraction=fraction)
    pairs = prepare_pairs(tmp_path / "pairs", tmp_path / "pairs.tsv", validation_fraction=fraction)
    assert (len(table.train), len(table.valid)) == (1000 - 1000 * fraction, 1000 * fraction)
    assert (len(pairs.train), len(pairs.valid)) == (1000 - 1000 * fraction, 1000 * fraction)


@given(st.lists(st.frozensets(st.sampled_from("abcde"), min_size=1), min_size=3, max_size=30), st.data())
def test_training_rows_do_not_depend_on_labels_of_rows_held_out(labels, data):
    held_out = hold_out(len(labels), 0.4, 0, labels)
    left = {label for row, own in enumerate(labels) if not held_out[row] for label in own}
    assert all(own <= left for own in labels)
    if held_out.any() and len(labels) * 0.4 > 2:
        known = st.frozensets(st.sampled_from(sorted(left)), min_size=1)
        changed = [data.draw(known) if held else own for own, held in zip(labels, held_out, strict=True)]
        assert hold_out(len(labels), 0.4, 0, changed).tolist() == held_out.tolist()


def test_the_only_row_of_a_label_stays_in_training_if_a_later_one_that_is_held_out_gets_its_label():
    """The first of the two was held out in place of the second."""
    first, second, *_ = np.random.default_rng(0).permutation(6).tolist()
    labels = [{"x" if row == first else "a"} for row in range(6)]
    held_out = hold_out(6, 0.5, 0, labels)
    assert (held_out[first], held_out[second]) == (False, True)
    assert hold_out(6, 0.5, 0, [{"x"} if row == second else own for row, own in enumerate(labels)])[first] == 0


def test_of_few_rows_one_is_held_out_where_another_has_its_labels():
    for seed in range(20):
        assert hold_out(4, 0.1, seed, [{"a"}, {"a"}, {"b"}, {"c"}]).sum() == 1
