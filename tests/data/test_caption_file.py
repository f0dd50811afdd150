"""Captions of COCO, and a file of captions inside an archive of images."""

import gzip
import io
import json
import zipfile

import pytest
from PIL import Image

from chainrule_app.readers.captions import captions_in, prepare_captions, read_captions

COCO = {
    "info": {},
    "images": [{"id": number, "file_name": f"train/{number}.png"} for number in range(4)],
    "annotations": [{"id": 9, "image_id": number % 4, "caption": f"a red\nsquare {number}"} for number in range(8)],
}


def archive(path, **members):
    with zipfile.ZipFile(path, "w") as file:
        for number in range(4):
            content = io.BytesIO()
            Image.new("RGB", (8, 8), (200, 10 * number, 0)).save(content, "PNG")
            file.writestr(f"train/{number}.png", content.getvalue())
        for name, text in members.items():
            file.writestr(name.replace("__", "."), text)
    return path


def test_captions_of_coco_are_read(tmp_path):
    (tmp_path / "captions.json.gz").write_bytes(gzip.compress(json.dumps(COCO).encode()))
    found = list(read_captions(tmp_path / "captions.json.gz"))
    assert [caption.image for caption in found] == [f"train/{number % 4}.png" for number in range(8)]
    assert found[1].text == "a red square 1"
    images = archive(tmp_path / "images.zip")
    prepared = prepare_captions(tmp_path / "data", images, tmp_path / "captions.json.gz", size=8, min_count=1)
    assert len(prepared.train) + len(prepared.valid) == 4
    assert len(prepared.train.captions) + len(prepared.valid.captions) == 8


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "expected captions in the format of COCO"),
        ("[" * 100_000, "expected captions in the format of COCO"),
        ('{"images": []}', "expected captions in the format of COCO"),
        ('{"images": [7], "annotations": []}', "image 1: expected an object with id and file_name, got 7"),
        ('{"images": [], "annotations": [{"image_id": 1, "caption": "a"}]}', "annotation 1: .* one of the 0 images"),
        ('{"images": [{"id": 1, "file_name": "a"}], "annotations": [{"image_id": 1}]}', "annotation 1: expected"),
        ("\udcff", "expected captions in the format of COCO"),
    ],
)
def test_other_json_is_named(tmp_path, content, message):
    (tmp_path / "a.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=message):
        list(read_captions(tmp_path / "a.json"))


RECORDS = [{"text": f"a square {number}", "file_name": f"{number}.png"} for number in range(3)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.jsonl", "".join(json.dumps(record) + "\n" for record in RECORDS)),
        ("a.json", json.dumps([{"caption": [record["text"]], "image": record["file_name"]} for record in RECORDS])),
        ("a.csv", "caption,file_name\n" + "".join(f"{record['text']},{record['file_name']}\n" for record in RECORDS)),
        ("b.csv", "id,image,split,caption\n" + "".join(f"7,{n}.png,train,a square {n}\n" for n in range(3))),
        ("a.txt", "".join(f"{record['file_name']}\t{record['text']}\n" for record in RECORDS)),
    ],
)
def test_captions_are_found_by_name(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    found = [(caption.image, caption.text) for caption in read_captions(tmp_path / name)]
    assert found == [(f"{number}.png", f"a square {number}") for number in range(3)]


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"image": "a.png", "caption": "a", "text": "b"},
            "one column for the caption, named for example caption, got 2 .caption, text",
        ),
        (
            {"picture": "a.png", "caption": "a"},
            "one column for the image, named for example image, got none among picture, caption",
        ),
        ({"image": "a.png", "caption": 3}, "record 1: expected the name of an image under 'image' and a caption"),
    ],
)
def test_records_without_captions_are_named(tmp_path, record, message):
    (tmp_path / "a.jsonl").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=message):
        list(read_captions(tmp_path / "a.jsonl"))


def test_the_file_of_captions_in_an_archive_is_found(tmp_path):
    lines = "".join(f"{number}.png\ta square\n" for number in range(4))
    assert captions_in(archive(tmp_path / "a.zip", captions__txt=lines, README__txt="hello")).name == "captions.txt"
    assert captions_in(archive(tmp_path / "b.zip", x__json=json.dumps(COCO))).name == "x.json"
    for members in ({}, {"a__txt": lines, "b__txt": lines}):
        with pytest.raises(ValueError, match=r"expected one file of captions in it, got (none|a\.txt, b\.txt)"):
            captions_in(archive(tmp_path / "c.zip", **members))
