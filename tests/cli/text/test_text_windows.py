from hypothesis import given
from hypothesis import strategies as st

from chainrule._app.tasks import open_run
from chainrule._app.tasks.text.preparing import file_window, own_window
from chainrule.data import ByteVocabulary, WordVocabulary


@given(size=st.integers(2, 60), rows=st.integers(1, 5), steps=st.integers(2, 20))
def test_rows_follow_one_another_and_lose_less_than_one_symbol_a_row(tmp_path_factory, size, rows, steps):
    file = tmp_path_factory.mktemp("text") / "a.bin"
    file.write_bytes(bytes(range(1, size + 1)))
    x, lengths = file_window(ByteVocabulary(), "stream", str(file), rows, steps)
    assert lengths is None
    assert x.flatten().tolist() == list(range(1, x.numel() + 1))
    assert x.shape[0] <= rows
    assert x.shape[1] <= steps
    assert min(size, rows * steps) - x.numel() < x.shape[0]


def test_lines_keep_their_lengths_and_those_without_a_step_are_passed_over(tmp_path):
    (tmp_path / "a.txt").write_text("a b c d\n\ne\nf g h i j k l")
    vocabulary = WordVocabulary(list("abcdefghijkl"))
    x, lengths = file_window(vocabulary, "lines", str(tmp_path / "a.txt"), 8, 5)
    assert lengths.tolist() == [5, 2, 5]
    assert [vocabulary.decode(row[:length].numpy()) for row, length in zip(x, lengths, strict=True)] == [
        "a b c d\n",
        "e\n",
        "f g h i j",
    ]
    assert x[1, 2:].tolist() == [0, 0, 0]
    first, _ = file_window(vocabulary, "lines", str(tmp_path / "a.txt"), 1, 5)
    assert len(first) == 1


def test_a_run_with_little_held_out_is_looked_at_in_training(runs):
    run = open_run(runs / "stream")
    held_out, _, part = own_window(run, 2, 8)
    assert part == "held-out"
    assert "line 48" in run.vocabulary.decode(held_out.flatten().numpy())
    trained, _, part = own_window(run, 8, 200)
    assert part == "training"
    assert run.vocabulary.decode(trained.flatten().numpy()).startswith("line 0 of")
