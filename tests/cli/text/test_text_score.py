import csv
import json
import math
import sys

import pytest
import torch

from chainrule.training import DynamicEvaluator
from chainrule_app.tasks import open_run
from chainrule_app.tasks.text import scoring


def records(outcome):
    assert outcome.status == 0, outcome
    return [json.loads(line) for line in outcome.out.splitlines()]


def reference(run_path, text):
    """-log p of a text in one forward pass."""
    run = open_run(run_path)
    x = torch.from_numpy(run.vocabulary.encode(text)).unsqueeze(0)
    return -run.model().log_prob(x).item(), x.shape[1]


def test_a_stream_is_scored_as_one_text(command, runs, text_file):
    (total,) = records(command("score", runs / "stream", text_file, "--json"))
    nats, elements = reference(runs / "stream", text_file.read_text(encoding="utf-8"))
    assert total["elements"] == elements
    assert total["nats"] == pytest.approx(nats, rel=1e-5)  # float32 sums in another order
    assert total["bits_per_element"] == pytest.approx(nats / elements / math.log(2), rel=1e-5)
    assert total["perplexity"] == pytest.approx(math.exp(nats / elements), rel=1e-5)
    assert total["unknown"] == 0


def test_lines_are_numbered_as_in_the_file_and_carry_their_text(command, runs, text_file):
    rows = records(command("score", runs / "stream", text_file, "--per", "line", "--json"))
    assert [row["text"] for row in rows] == text_file.read_text(encoding="utf-8").splitlines()
    assert [row["line"] for row in rows] == list(range(1, len(rows) + 1))
    assert all(row["elements"] == len(row["text"]) + 1 for row in rows)


def test_a_model_of_lines_scores_each_line_on_its_own(command, runs, tmp_path):
    lines = ["line 3", "", "all is odd, all is well, all is odd", "line 3", "café"]
    (tmp_path / "a.txt").write_text("\n".join(lines), encoding="utf-8")  # the last line lacks its end
    rows = records(command("score", runs / "lines", tmp_path / "a.txt", "--per", "line", "--json"))
    for row, line in zip(rows, lines, strict=True):
        nats, elements = reference(runs / "lines", f"{line}\n")
        assert row["nats"] == pytest.approx(nats, rel=1e-5)
        assert (row["elements"], row["text"]) == (elements, line)
    assert rows[0]["nats"] == pytest.approx(rows[3]["nats"], rel=1e-6)


def test_a_model_of_a_stream_scores_a_line_where_it_stands(command, runs, tmp_path):
    (tmp_path / "a.txt").write_text("line 3\nline 3\n")
    first, second = records(command("score", runs / "stream", tmp_path / "a.txt", "--per", "line", "--json"))
    assert abs(first["nats"] - second["nats"]) > 1e-3


@pytest.mark.parametrize("kind", ["stream", "lines"])
def test_memory_bounds_change_no_figure(command, runs, tmp_path, monkeypatch, kind):
    text = "line 1 of the café log\n" * 3 + "all is well, " * 30 + "\n\n" + "line 4 of the log"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    asked = ["score", runs / kind, tmp_path / "a.txt", "--per", "line", "--json"]
    whole = records(command(*asked))
    monkeypatch.setattr(scoring, "_PIECE_BYTES", 17)  # cuts é in two
    monkeypatch.setattr(scoring, "_LOGITS", 600)
    monkeypatch.setattr(scoring, "_POOL_SYMBOLS", 50)
    pieces = records(command(*asked))
    for one, other in zip(whole, pieces, strict=True):
        assert one["nats"] == pytest.approx(other["nats"], rel=1e-5)
        assert (one["line"], one["text"], one["elements"]) == (other["line"], other["text"], other["elements"])


def test_the_most_surprising_lines_come_first(command, runs, text_file):
    asked = ["score", runs / "lines", text_file, "--json"]
    rows = records(command(*asked, "--per", "line"))
    by_nats = [row["nats"] for row in records(command(*asked, "--sort", "--by", "nats"))]
    assert by_nats == sorted((row["nats"] for row in rows), reverse=True)
    by_bits = [row["bits_per_element"] for row in records(command(*asked, "--sort", "--by", "bits"))]
    assert by_bits == sorted((row["bits_per_element"] for row in rows), reverse=True)
    found = records(command(*asked, "--top", 3, "--by", "bits"))
    assert [row["bits_per_element"] for row in found] == by_bits[:3]


def test_lines_can_be_sorted_by_surprise_above_the_held_out_average(command, runs, tmp_path, monkeypatch):
    """An empty line of a stream, one symbol, came first."""
    (tmp_path / "a.txt").write_text("line 1 of the café log, all is well\n\n\n" + "XQ#Z%%KJW=\n" + "line 2 of the\n")
    asked = ["score", runs / "stream", tmp_path / "a.txt", "--json"]
    monkeypatch.setattr("chainrule_app.tasks.text.rows.expected_nats", lambda run: 2.0)
    rows = records(command(*asked, "--per", "line", "--sort", "--by", "excess"))
    assert rows[0]["line"] == 4
    excess = [(row["nats"] - row["elements"] * 2.0) / row["elements"] ** 0.5 for row in rows]
    assert excess == sorted(excess, reverse=True)
    top = records(command(*asked, "--top", 2, "--by", "excess"))
    assert [row["line"] for row in top] == [row["line"] for row in rows[:2]]


def test_lines_of_unequal_length_are_padded_to_less_than_twice_their_symbols(command, runs, tmp_path, monkeypatch):
    """A long line among many short ones made each of these as long."""
    sizes = []
    measure = scoring.measure

    def counted(reader, ids, *more, **options):
        sizes.append(ids.numel())
        return measure(reader, ids, *more, **options)

    lines = ["line 1"] * 40 + ["line 2 " * 300] + ["line"] * 40 + ["line 3 of the log"] * 20
    (tmp_path / "a.txt").write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.setattr(scoring, "measure", counted)
    rows = records(command("score", runs / "lines", tmp_path / "a.txt", "--per", "line", "--json"))
    assert [row["text"] for row in rows] == lines
    symbols = sum(row["elements"] for row in rows)
    assert symbols <= sum(sizes) < 2 * symbols

    sizes.clear()
    read_rows = DynamicEvaluator.read_rows

    def counted_rows(self, x, lengths):
        sizes.append(x.numel())
        return read_rows(self, x, lengths)

    monkeypatch.setattr(DynamicEvaluator, "read_rows", counted_rows)
    rows = records(command("score", runs / "lines", tmp_path / "a.txt", "--per", "line", "--json", "--adapt"))
    assert [row["text"] for row in rows] == lines
    assert symbols <= sum(sizes) <= 2 * symbols


def test_rows_are_written_as_a_table(command, runs, text_file, tmp_path):
    asked, out = ("score", runs / "lines", text_file), tmp_path / "scores.csv"
    rows = records(command(*asked, "--per", "line", "--json"))
    assert command(*asked, "--out", out).err.startswith(f"{out}: 60 rows\nthe run was trained on this very text")
    heading, *written = csv.reader(out.read_text(encoding="utf-8").splitlines())
    assert heading == ["line", "nats", "bits/elem", "excess", "unknown", "spot", "why", "text"]
    assert [(int(row[0]), float(row[1]), row[-1]) for row in written] == [
        (row["line"], row["nats"], row["text"]) for row in rows
    ]
    assert command(*asked, "--csv").out == out.read_text(encoding="utf-8")


def test_unseen_characters_are_counted_not_refused(command, runs, tmp_path):
    (tmp_path / "a.txt").write_text("line ☃☃\nline 1\n", encoding="utf-8")
    first, second = records(command("score", runs / "stream", tmp_path / "a.txt", "--per", "line", "--json"))
    assert (first["unknown"], second["unknown"]) == (2, 0)
    elements = records(command("score", runs / "stream", tmp_path / "a.txt", "--per", "element", "--json"))
    assert [row["text"] for row in elements[5:8]] == ["<unk>", "<unk>", "\\n"]
    assert "unknown             2\n" in command("score", runs / "stream", tmp_path / "a.txt").out
    assert "unknown 2," in command("score", runs / "stream", tmp_path / "a.txt", "--per", "line").out


def test_the_table_is_for_people(command, runs, tmp_path):
    (tmp_path / "a.txt").write_text("line\x1b[31m 1\nline 2\n")
    outcome = command("score", runs / "stream", tmp_path / "a.txt", "--per", "line")
    header, first, second, total, measured = outcome.out.splitlines()
    assert header.split() == ["line", "nats", "bits/elem", "excess", "unknown", "spot", "why", "text"]
    assert first.endswith("line\\x1b[31m 1")  # no command reaches the terminal
    assert second.split()[0] == "2"
    assert measured.startswith("measured: exact; nats per symbol")
    assert ", elements 19, " in total
    for name in ("bits per element", "perplexity", "unknown", "bits per character", "bits per byte", "unknown share"):
        assert f", {name} " in total


@pytest.mark.parametrize("kind", ["stream", "lines", "words", "bytes"])
def test_rows_add_up_to_the_figures_and_these_compare_between_levels(command, runs, tmp_path, kind):
    (tmp_path / "a.txt").write_text("line 1 of the café\nall is 99 odd\n", encoding="utf-8")
    asked = ("score", runs / kind, tmp_path / "a.txt", "--json")
    (total,) = records(command(*asked))
    bits = total["nats"] / math.log(2)
    assert total["bits_per_character"] == pytest.approx(bits / 33)
    assert total["bits_per_byte"] == pytest.approx(bits / 34)
    assert total["unknown_share"] == total["unknown"] / total["elements"]
    for per in ("line", "element"):
        outcome = command(*asked, "--per", per)
        for name in ("nats", "elements", "unknown"):
            assert math.fsum(row[name] for row in records(outcome)) == pytest.approx(total[name], rel=1e-12)
        said = json.loads(outcome.err)
        assert said.pop("measured") == total["measured"]
        assert said == pytest.approx({name: total[name] for name in said}, rel=1e-12)
        assert said.keys() == total.keys() - {"measured"}


def test_any_bytes_can_be_scored_as_bytes(command, refused, runs, tmp_path):
    (tmp_path / "a.bin").write_bytes(b"\x00\xff\xfe line\n\xc3")
    (total,) = records(command("score", runs / "bytes", tmp_path / "a.bin", "--json"))
    assert total["elements"] == 10
    assert records(command("score", runs / "bytes", tmp_path / "a.bin", "--per", "line", "--json"))[0]["text"]
    assert "byte" in refused("score", runs / "stream", tmp_path / "a.bin")


@pytest.mark.parametrize("options", [("--per", "line"), ("--per", "element"), ("--per", "file", "--json")])
def test_nothing_to_score_is_refused(refused, runs, tmp_path, options):
    (tmp_path / "empty.txt").touch()
    assert "empty" in refused("score", runs / "stream", tmp_path / "empty.txt", *options)


def test_what_cannot_be_read_is_refused(refused, runs, tmp_path):
    assert "no such file" in refused("score", runs / "stream", tmp_path / "nowhere.txt")
    assert "directory" in refused("score", runs / "stream", tmp_path)
    (tmp_path / "latin.txt").write_bytes("line 1\ncafé\n".encode("latin-1"))
    line = refused("score", runs / "stream", tmp_path / "latin.txt")
    assert "byte 10" in line
    assert "line 2" in line
    for rank in (("--sort",), ("--top", 3)):
        line = refused("score", runs / "stream", tmp_path / "latin.txt", "--per", "file", *rank)
        assert f"{rank[0]}: these figures describe the whole" in line
        assert "use --per line or --per element" in line
    assert "--top" in refused("score", runs / "stream", tmp_path / "latin.txt", "--top", 0)
    assert "line, element" in refused("score", runs / "stream", tmp_path / "a", "--per", "page").replace('"', "")


@pytest.mark.parametrize("kind", ["stream", "lines"])
def test_with_adapt_a_run_learns_what_it_has_scored_and_stays_as_it_is(command, runs, text_file, kind):
    files = {path: path.read_bytes() for path in (runs / kind).rglob("*") if path.is_file()}
    (plain,) = records(command("score", runs / kind, text_file, "--json"))
    (still,) = records(command("score", runs / kind, text_file, "--json", "--adapt", "--adapt-rate", 0))
    (adapted,) = records(command("score", runs / kind, text_file, "--json", "--adapt", "--adapt-rate", 0.01))
    assert still["nats"] == pytest.approx(plain["nats"], rel=1e-6)
    assert adapted["elements"] == plain["elements"]
    assert adapted["nats"] < 0.95 * plain["nats"]
    assert {path: path.read_bytes() for path in (runs / kind).rglob("*") if path.is_file()} == files


def test_a_rate_of_adapting_needs_adapt(refused, runs, text_file):
    assert "--adapt" in refused("score", runs / "stream", text_file, "--adapt-rate", 0.01)


def test_a_wide_vocabulary_in_clusters_is_opened_again(ok, tmp_path):
    (tmp_path / "words.txt").write_text("\n".join(f"word{number % 10_000}" for number in range(10_500)))
    sizes = ("--hidden-size", 16, "--embedding-size", 16, "--num-layers", 1, "--adaptive-softmax", "--tie-weights")
    ok("train", tmp_path / "words.txt", "--level", "word", *sizes, "--steps", 1, "--out", tmp_path / "run")
    scored = ok("score", tmp_path / "run", tmp_path / "words.txt", "--per", "file", "--json")
    assert json.loads(scored.out)["elements"] >= 10_500


@pytest.mark.parametrize("kind", ["stream", "lines"])
def test_line_ends_of_another_kind_are_noticed(command, runs, text_file, tmp_path, kind):
    text, said = text_file.read_bytes()[:450], "lines end in CR LF, but in LF in the training text"
    (tmp_path / "lf.txt").write_bytes(text)
    (tmp_path / "crlf.txt").write_bytes(text.replace(b"\n", b"\r\n"))
    assert said in command("score", runs / kind, tmp_path / "crlf.txt").out
    assert said in command("score", runs / kind, tmp_path / "crlf.txt", "--json").err
    assert "lines end in" not in command("score", runs / kind, tmp_path / "lf.txt").out


def test_a_byte_order_mark_and_old_line_ends_change_no_figure(command, runs, text_file, tmp_path):
    text = text_file.read_bytes()[:450]
    (tmp_path / "lf.txt").write_bytes(text)
    (tmp_path / "bom.txt").write_bytes(b"\xef\xbb\xbf" + text)
    (tmp_path / "cr.txt").write_bytes(text.replace(b"\n", b"\r"))
    for kind in ("stream", "lines", "words"):
        expected, *others = (
            records(command("score", runs / kind, tmp_path / f"{name}.txt", "--per", "line", "--json"))
            for name in ("lf", "bom", "cr")
        )
        assert others == [expected, expected]


def test_a_row_fits_on_a_line_of_a_terminal_and_is_whole_elsewhere(command, runs, tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("all is well, " * 20 + "\nline 2\n")
    asked = ("score", runs / "stream", tmp_path / "a.txt", "--per", "line")
    assert ("all is well, " * 20).rstrip() in command(*asked).out
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _, first, second, *_ = command(*asked).out.splitlines()
    assert (len(first), first[-1]) == (70, "…")
    assert second.endswith("line 2")
