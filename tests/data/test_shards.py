"""Folders of shards, and tar files as WebDataset writes them."""

import io
import tarfile

import pytest
from PIL import Image

import chainrule
from chainrule_app.readers.gather import gathered
from chainrule_app.readers.images.folder import ImageFolder
from chainrule_app.readers.members import FileSet
from chainrule_app.readers.sources import kind_of, paths_of, recognise


def names(source):
    return [path.rpartition("/")[2] for path in paths_of(str(source))]


def test_a_folder_of_shards_stands_for_them(tmp_path):
    for name in ("b.jsonl", "a.jsonl.gz", "_SUCCESS", ".a.crc"):
        (tmp_path / name).write_text('{"text": "one"}\n')
    assert names(tmp_path) == ["a.jsonl.gz", "b.jsonl"]
    (tmp_path / "c.txt").write_text("of another kind\n")
    assert names(tmp_path) == [tmp_path.name]


def test_shards_of_text_and_tables_are_read_in_order(tmp_path):
    (tmp_path / "rows").mkdir()
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text(f"line {number}\n")
        (tmp_path / "rows" / f"{number}.csv").write_text(f"age,smokes\n{number},yes\n")
    (tmp_path / "lines").mkdir()
    for path in list(tmp_path.glob("*.txt")):
        path.rename(tmp_path / "lines" / path.name)
    assert gathered(str(tmp_path / "lines"), "text").open().read() == b"line 0\nline 1\nline 2\n"
    assert gathered(str(tmp_path / "rows"), "rows").open().read() == b"age,smokes\n0,yes\n1,yes\n2,yes\n"
    assert recognise(tmp_path / "rows") == "table"


def web_dataset(path, keys, label):
    with tarfile.open(path, "w") as archive:
        for key in keys:
            image = io.BytesIO()
            Image.new("L", (4, 4), 10 * key).save(image, "png")
            for ending, content in (("png", image.getvalue()), ("cls", label(key).encode()), ("json", b"{}")):
                member = tarfile.TarInfo(f"{key:06}.{ending}")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))


@pytest.fixture
def shards(tmp_path):
    for shard in range(2):
        web_dataset(tmp_path / f"shard-{shard}.tar", range(6 * shard, 6 * shard + 6), lambda key: "ab"[key % 2])
    return tmp_path


def test_tars_of_a_web_dataset_are_images_with_labels(shards):
    assert names(shards) == ["shard-0.tar", "shard-1.tar"]
    assert kind_of(paths_of(str(shards))[0]) == "image"
    source = ImageFolder(FileSet(paths_of(f"{shards}/*.tar")))
    assert (source.count, source.shape) == (12, (1, 4, 4))
    assert source.labels.names == ("a", "b")
    assert source.labels.numbers.tolist() == [0] * 6 + [1] * 6


@pytest.mark.slow
def test_a_classifier_learns_from_shards(shards):
    run = chainrule.fit(str(shards), task="classify", steps=1)
    assert run.task.name == "classify-images"
    assert set(run.classify(str(shards))["label"]) <= {"a", "b"}
