"""Data from standard input, several files, patterns, .gz, .zst, JSON Lines and Parquet train as one plain file does."""

import gzip
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import chainrule
from chainrule_app.readers import files_in_turn
from chainrule_app.readers.gather import gathered
from chainrule_app.readers.images.source import png
from chainrule_app.readers.music import midi_file
from chainrule_app.readers.sounds.sound_file import write_wav

FLAGS = ("--steps", 2, "--hidden-size", 8, "--batch-size", 2, "--chunk-length", 8, "--kneser-ney-order", 0)
LINES = [f"line {number} of a log" for number in range(120)]


@pytest.fixture
def plain(command, tmp_path):
    """The weights of a run on the plain text."""
    (tmp_path / "plain.txt").write_text("\n".join(LINES) + "\n")
    return weights(command, tmp_path, tmp_path / "plain.txt")


def weights(command, tmp_path, *data):
    out = tmp_path / "run"
    outcome = command("train", *data, "--overwrite", "--out", out, *FLAGS)
    assert outcome.status == 0, outcome.err
    return (out / "model.safetensors").read_bytes()


def test_standard_input_is_read_once_and_the_run_goes_on(command, ok, plain, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO((tmp_path / "plain.txt").read_bytes())))
    assert weights(command, tmp_path, "-") == plain
    assert json.loads((tmp_path / "run/config.json").read_text())["data"]["sources"]["source"] == "-"
    ok("train", "--resume", "--out", tmp_path / "run", "--steps", 3)


def test_several_files_and_a_pattern_are_one_text(command, ok, plain, tmp_path):
    (tmp_path / "my logs").mkdir()
    parts = [tmp_path / "my logs" / f"{number}.log.gz" for number in range(3)]
    for number, part in enumerate(parts):
        part.write_bytes(gzip.compress("\n".join(LINES[40 * number : 40 * number + 40]).encode()))  # no last line feed
    assert weights(command, tmp_path, *parts) == plain
    assert weights(command, tmp_path, tmp_path / "my logs" / "*.gz") == plain
    ok("train", "--resume", "--out", tmp_path / "run", "--steps", 3)


def test_zst_is_unpacked(command, ok, plain, tmp_path):
    zstandard = pytest.importorskip("zstandard")
    (tmp_path / "log.txt.zst").write_bytes(zstandard.compress((tmp_path / "plain.txt").read_bytes()))
    assert weights(command, tmp_path, tmp_path / "log.txt.zst") == plain
    ok("train", "--resume", tmp_path / "log.txt.zst", "--out", tmp_path / "run")


def test_texts_of_records_are_lines(command, plain, refused, tmp_path):
    polars = pytest.importorskip("polars")
    records = [{"id": number, "text": line} for number, line in enumerate(LINES)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert weights(command, tmp_path, tmp_path / "a.jsonl") == plain
    polars.DataFrame(records).rename({"text": "body"}).write_parquet(tmp_path / "a.parquet")
    assert weights(command, tmp_path, tmp_path / "a.parquet", "--text-column", "body") == plain
    line = refused("train", tmp_path / "a.parquet", "--level", "char", "--out", tmp_path / "other")
    assert "expected a text in the column 'text', got none: name it with --text-column (columns: id, body)" in line


def test_records_become_the_rows_of_a_table_and_labelled_texts(ok, tmp_path):
    records = [{"size": number % 3, "name": "ab"[number % 2], "note": None} for number in range(80)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (tmp_path / "rows.csv").write_text("size,name,note\n" + "".join(f"{r['size']},{r['name']},\n" for r in records))
    found = []
    for name in ("rows.jsonl", "rows.csv"):
        out = tmp_path / "run"
        flags = ("--steps", 2, "--types", "note=skip")
        ok("train", tmp_path / name, *flags, "--overwrite", "--out", out)
        found.append((out / "model.safetensors").read_bytes())
    assert found[0] == found[1]
    texts = [{"text": f"a {label} thing", "label": label} for _ in range(20) for label in ("good", "bad")]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in texts))
    ok("train", tmp_path / "texts.jsonl", "--task", "classify", "--steps", 2, "--out", tmp_path / "c")


@pytest.mark.parametrize(
    ("kind", "first"), [("rows", "a,b\n"), ("tags", "a\tX\n"), ("pairs", "a\tb\n"), ("text", "a\n")]
)
@pytest.mark.parametrize("marked", [[0], [1], [0, 1]])
def test_byte_order_marks_of_several_files_are_no_text(tmp_path, kind, first, marked):
    """The mark of a second file became a part of its first word, or made the header of its table another one."""
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for index, path in enumerate(paths):
        path.write_text(first + "1,2\n", encoding="utf-8-sig" if index in marked else "utf-8")
    assert "\ufeff" not in gathered(" ".join(map(str, paths)), kind).open().read().decode()


def test_records_keep_the_numbers_of_their_lines(ok, refused, tmp_path):
    """They became rows of CSV under a header, and were counted one line too far, or more where a text had several."""
    rows, later = tmp_path / "rows.jsonl", tmp_path / "later.jsonl"
    rows.write_text("".join(f'{{"size": {n % 9}, "name": "{"ab"[n % 2]}\\n."}}\n' for n in range(80)))
    ok("train", rows, "--task", "table", "--steps", 2, "--out", tmp_path / "run")
    scored = ok("score", tmp_path / "run", rows, "--json").out.splitlines()
    assert [json.loads(line)["line"] for line in scored] == list(range(1, 81))
    later.write_text(rows.read_text().replace('{"size": 4', '{"size": -4', 1))
    assert "later.jsonl line 5, column 'size': expected an integer" in refused("score", tmp_path / "run", later)
    records = [{"text": f"a {label} thing", "label": label} for _ in range(20) for label in ("good", "bad")]
    (tmp_path / "texts.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    out = ok("train", tmp_path / "texts.jsonl", "--task", "classify", "--steps", 2, "--out", tmp_path / "c").err
    assert "texts.jsonl, with a header" in out
    found = ok("classify", tmp_path / "c", tmp_path / "texts.jsonl", "--json").out.splitlines()
    assert [json.loads(line)["line"] for line in found] == list(range(1, 41))


def test_errors_in_sentences_of_records_name_the_record(refused, tmp_path):
    """They named a line of the temporary file, which has one for each word."""
    records = [{"tokens": ["a", "b"], "tags": ["O", "I-X" if n == 6 else "B-X"]} for n in range(40)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    line = refused("train", tmp_path / "a.jsonl", "--task", "tag", "--out", tmp_path / "run")
    assert "a.jsonl record 7: I-X after O is impossible" in line


def test_keys_of_records_are_no_text_to_classify(ok, refused, tmp_path):
    """Where none of them was the column of training, the line of keys was labelled as if it were a text."""
    polars = pytest.importorskip("polars")
    columns = {"text": ["a good thing", "a bad thing"] * 20, "label": ["good", "bad"] * 20}
    polars.DataFrame(columns).write_parquet(tmp_path / "texts.parquet")
    ok("train", tmp_path / "texts.parquet", "--task", "classify", "--steps", 2, "--out", tmp_path / "c")
    polars.DataFrame(columns).rename({"text": "words"}).write_parquet(tmp_path / "other.parquet")
    for verb in ("classify", "evaluate"):
        assert "the column 'text', got 'words'" in refused(verb, tmp_path / "c", tmp_path / "other.parquet")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt.gz", b"no gzip", "a.txt.gz: cannot be read (Not a gzipped file"),
        ("a.txt.zst", b"no zstd", "a.txt.zst: cannot be read (zstd"),
        ("a.jsonl", b'{"text": "a"}\n[1]\n', "line 2: expected one JSON object per line"),
        ("a.jsonl", b'{"text": 7}\n', "record 1: expected a text in the column 'text', got 7"),
    ],
)
def test_damage_is_one_line_and_leaves_nothing(refused, tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert message in refused("train", tmp_path / name, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_bomb_is_refused_before_it_fills_the_disk(refused, tmp_path, monkeypatch):
    monkeypatch.setattr(files_in_turn, "_ALWAYS", 1 << 20)
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(bytes(1 << 24)))
    assert "expands to more than 200× its size" in refused("train", tmp_path / "a.txt.gz", "--out", "x")


def test_a_pattern_without_files_is_named(refused, tmp_path):
    assert "no file matches this pattern" in refused("train", tmp_path / "*.txt")
    with pytest.raises(FileNotFoundError, match="no file matches"):
        chainrule.fit(str(tmp_path / "*.txt"), steps=1)


def test_completion_is_installed_for_the_shell(ok, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    said = ok("--install-completion").out
    assert "add this line to ~/.bashrc: . " in said
    assert not (tmp_path / ".bashrc").exists()  # a startup file belongs to the user
    script = (tmp_path / ".local/share/bash-completion/completions/chainrule").read_text()
    assert "--hidden-size" in script
    assert "compress" in script


def write_media(kind, folder):
    draw = np.random.default_rng(0)
    for number in range(12):
        file = folder / ("ab"[number % 2] if kind == "image" else "all") / f"{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        if kind == "image":
            file.with_suffix(".png").write_bytes(png(draw.integers(0, 256, (6, 6), np.uint8)))
        elif kind == "sound":
            write_wav(file.with_suffix(".wav"), draw.uniform(-1, 1, 120 + number), 8000)
        else:
            file.with_suffix(".mid").write_bytes(midi_file(draw.integers(0, 2, (40, 5)), lowest=60))


SMALL = {
    "image": ("--channels", 4, "--layers", 1, "--bits", 1),
    "sound": ("--channels", 4, "--blocks", 1, "--layers-per-block", 2),
    "music": ("--hidden-size", 8),
}


@pytest.mark.parametrize("kind", SMALL)
def test_several_files_and_a_pattern_are_one_folder(kind, command, ok, refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder, out = Path("my files"), tmp_path / "run"
    write_media(kind, folder)

    def trained(*data):
        ok("train", *data, "--overwrite", "--out", out, "--steps", 1, *SMALL[kind])
        return (out / "model.safetensors").read_bytes(), json.loads((out / "config.json").read_text())["facts"][
            "source"
        ]

    plain, source = trained(folder)
    files = sorted(folder.glob("*/*"))
    parts = folder.iterdir() if kind == "image" else files
    for data in ([f"{folder}/*/[0-5].*", *folder.glob("*/[6-9].*"), f"{folder}/*/1?.*"], parts):
        weights, found = trained(*data)
        assert weights == plain, data
        assert found["bytes"] == source["bytes"]
    ok("train", "--resume", "--out", out, "--steps", 2)
    assert len(command("score", out, "my files/*/1*", "--json").out.splitlines()) == 3
    assert len(chainrule.load(out).score(f"{folder}/*/[0-5].*")) == 6
    assert "my files/*.gif: no file matches this pattern: check its folder" in refused("score", out, "my files/*.gif")
    assert "*.mid: no file matches" in refused("train", f"{tmp_path}/*.mid")
    files[0].write_bytes(b"broken")
    assert refused("train", "my files/*/*", "--overwrite", "--out", out).startswith(f"chainrule: {files[0]}: ")


def test_a_pattern_with_one_match_is_that_file(command, plain, tmp_path):
    assert weights(command, tmp_path, tmp_path / "pl*.txt") == plain


def test_patterns_name_labelled_images_and_images_to_caption(command, ok, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_media("image", Path("pictures"))
    arguments = ("--task", "classify", "--model", "vit", "--model-size", 8, "--num-heads", 2, "--steps", 1)
    outcome = ok("train", "pictures/*/*", *arguments, "--out", "run")
    assert "2 labels: a, b" in outcome.err
    assert len(command("classify", "run", "pictures/a/*.png", "--csv").out.splitlines()) == 1 + 6
