"""URLs in the options of verbs: what they read is copied, and what they write arrives whole or not at all."""

import io
import json

import polars
import pytest
from scale_data import table

import chainrule
from chainrule_app.cli.main import main
from chainrule_app.readers import outgoing

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def ok(capsys):
    def call(*words):
        capsys.readouterr()
        assert main([*map(str, words)]) == 0
        said = capsys.readouterr()
        assert "url-work" not in said.out + said.err
        return said

    return call


@pytest.fixture
def refused(capsys):
    def call(*words):
        capsys.readouterr()
        assert main([*map(str, words)]) == 2
        said = capsys.readouterr().err
        assert "url-work/" not in said
        *_, line = said.splitlines()
        assert [one for one in said.splitlines() if one.startswith("chainrule: ")] == [line]
        return line

    return call


def left_in(folder):
    return [path for path in (folder / "copies" / "url-work").rglob("*") if path.is_file()]


def test_rows_are_written_to_a_url_as_to_a_file(storage, run_of, ok, tmp_path):
    run = run_of("table")
    storage.pipe("/b/rows.csv", table(40).write_csv().encode())
    for name in ("x.csv", "x.jsonl.gz"):
        ok("score", run, "memory://b/rows.csv", "--out", tmp_path / name)
        said = ok("score", run, "memory://b/rows.csv", "--out", f"memory://b/made/{name}")
        assert f"memory://b/made/{name}: 40 rows" in said.err.splitlines()
        assert storage.cat(f"/b/made/{name}") == (tmp_path / name).read_bytes()
    gaps = table(9).with_columns(kind=None).write_csv().encode()
    storage.pipe("/b/gaps.csv", gaps)
    ok("fill", run, "memory://b/gaps.csv", "--out", "memory://b/f.parquet", "--probabilities", "memory://b/p.csv")
    filled = polars.read_parquet(io.BytesIO(storage.cat("/b/f.parquet")))
    assert filled.height == 9
    assert not filled["kind"].null_count()
    assert len(storage.cat("/b/p.csv").splitlines()) == 10
    assert left_in(tmp_path) == []


def test_an_error_leaves_what_was_there(storage, run_of, refused, tmp_path):
    storage.pipe("/b/x.csv", b"old")
    storage.pipe("/b/bad.csv", table(2000).write_csv().encode() + b"1,a,nothing\n")
    assert "bad.csv" in refused("score", run_of("table"), "memory://b/bad.csv", "--out", "memory://b/x.csv")
    assert storage.cat("/b/x.csv") == b"old"
    assert left_in(tmp_path) == []


def test_what_cannot_be_sent_is_kept(storage, run_of, refused, tmp_path, monkeypatch):
    def broken(*about, **settings):
        raise PermissionError("no")

    monkeypatch.setattr(type(storage), "put_file", broken)
    (tmp_path / "rows.csv").write_text(table(5).write_csv())
    line = refused("score", run_of("table"), tmp_path / "rows.csv", "--out", "memory://b/x.csv")
    assert "memory://b/x.csv: the storage refuses" in line
    assert f"what was written is in {tmp_path / 'copies' / 'url-work'}" in line
    assert [path.name for path in left_in(tmp_path)] == ["x.csv"]


@pytest.mark.parametrize(
    ("out", "line"),
    [
        ("https://host/x.csv", "--out: https://host/x.csv is read-only: name a path, or a storage such as s3"),
        ("nowhere://b/x.csv", "nowhere://b/x.csv: nowhere:// is unknown to fsspec"),
        ("memory://b/x.exe", "--out memory://b/x.exe: this format is not written"),
        ("s3://me:secret@b/x.csv", "s3://b/x.csv: the URL holds credentials"),
    ],
)
def test_places_that_cannot_be_written_are_refused_at_once(out, line, storage, run_of, refused, tmp_path):
    storage.pipe("/b/rows.csv", table(9).write_csv().encode())
    assert line in refused("score", run_of("table"), "memory://b/rows.csv", "--out", out)


def test_clusters_and_lists_of_runs_refuse_urls(storage, run_of, refused):
    storage.pipe("/b/rows.csv", table(9).write_csv().encode())
    call = ["score", run_of("table"), "memory://b/rows.csv", "--out", "memory://b/x.csv"]
    assert "a cluster writes shards to a folder" in refused(*call, "--engine", "ray")
    train = ["train", "memory://b/rows.csv", "--out", "memory://b/run", "--engine", "ray"]
    assert "--engine: other processes cannot see memory://b/run: name a folder or another URL" in refused(*train)
    assert "memory://b: expected a local folder, got a URL" in refused("runs", "memory://b")


def test_a_text_is_compressed_from_and_to_urls(storage, run_of, ok, refused):
    run, text = run_of("text"), b"one fish two fish\n"
    storage.pipe("/b/x.txt", text)
    assert "--out: expected the file to write" in refused("compress", run, "memory://b/x.txt")
    said = ok("compress", run, "memory://b/x.txt", "--out", "memory://b/x.chain", "--json")
    assert json.loads(said.out)["out"] == "memory://b/x.chain"
    assert "memory://b/x.chain: already exists" in refused(
        "compress", run, "memory://b/x.txt", "--out", "memory://b/x.chain"
    )
    ok("decompress", run, "memory://b/x.chain", "--out", "memory://b/again.txt")
    assert storage.cat("/b/again.txt") == text


def test_the_data_of_a_run_are_not_written_over(storage, refused):
    storage.pipe("/b/rows.csv", table(60).write_csv().encode())
    quick = {"steps": 1, "hidden_size": 8, "plain": True, "threads": 1, "precision": "float32"}
    run = chainrule.fit("memory://b/rows.csv", out="memory://b/run", **quick)
    line = refused("score", "memory://b/run", "memory://b/rows.csv", "--out", "memory://b/rows.csv")
    assert "the run was trained on this file" in line
    run.export("hub", "memory://b/hub")
    assert storage.exists("/b/hub/config.json")
    with pytest.raises(FileExistsError, match="memory://b/hub already exists"):
        run.export("hub", "memory://b/hub")
    run.report().save("memory://b/page.html")
    assert storage.cat("/b/page.html").startswith(b"<!")


def test_word_vectors_and_tokenizers_are_read_from_urls(storage, run_of, ok, tmp_path):
    """They are sources of a training, as its data are."""
    vectors = "".join(f"{word} 0.5 -1 {number}\n" for number, word in enumerate(["one", "two", "red", "fish"]))
    storage.pipe("/b/vectors.txt", vectors.encode())
    storage.pipe("/b/words.txt", b"\n\n".join(b"one o\nfish f\ntwo t" for _ in range(40)) + b"\n")
    quick = ["--steps", "1", "--hidden-size", "8", "--plain", "--threads", "1"]
    said = ok(
        "train", "memory://b/words.txt", "--task", "tag", "--vectors", "memory://b/vectors.txt",
        "--out", tmp_path / "run", *quick,
    )  # fmt: skip
    assert "vectors of 3 numbers for" in said.err


def test_files_named_by_options_are_read_from_urls(storage, run_of, ok, tmp_path):
    """One option of those whose type is a path; all are opened in the same place."""
    run = run_of("translate")
    for side, text in (("source", "one fish\n"), ("target", "ONE FISH\n")):
        storage.pipe(f"/b/{side}.txt", text.encode())
        (tmp_path / f"{side}.txt").write_text(text)
    figures = [
        ok("evaluate", run, "--json", "--source", f"{place}/source.txt", "--target", f"{place}/target.txt").out
        for place in (tmp_path, "memory://b")
    ]
    assert figures[0] == figures[1]


def test_several_files_are_sent_with_the_last_one_last(storage, tmp_path):
    sent, put = [], type(storage).put_file

    def noted(self, local, path, **settings):
        sent.append(path)
        put(self, local, path, **settings)

    type(storage).put_file = noted
    try:
        with outgoing.outgoing() as local:
            folder, sound = local("memory://b/folder", "out"), local("memory://b/x.wav", "out")
            folder.mkdir()
            for name in ("config.json", "model.bin", "a.txt"):
                (folder / name).write_text(name)
            for number in (1, 2):
                sound.with_stem(f"x-{number}").write_text(str(number))
            assert sent == []
    finally:
        type(storage).put_file = put
    assert sent[:3] == ["/b/folder/a.txt", "/b/folder/model.bin", "/b/folder/config.json"]
    assert sorted(sent[3:]) == ["/b/x-1.wav", "/b/x-2.wav"]
