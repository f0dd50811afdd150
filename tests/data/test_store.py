import json
import os

import numpy as np
import pytest

from chainrule_app.readers.store import Store, StoreWriter


def write(folder, arrays, **manifest):
    with StoreWriter(folder, "data.json") as writer:
        for name, values in arrays.items():
            writer.array(name, values)
        writer.finish(manifest)


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "data", {"numbers": np.arange(6, dtype=np.int64)}, classes=3)
    return tmp_path / "data"


def opened(folder):
    return Store(folder, "data.json", "numbers")


@pytest.mark.parametrize("shape", [(0,), (3,), (2, 0, 4), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float32])
def test_an_array_is_mapped_as_it_was_written(tmp_path, shape, dtype):
    array = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    write(tmp_path, {"numbers": array})
    found = opened(tmp_path).array("numbers", dtype, (None, *shape[1:]))
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, array)
    assert not found.size or isinstance(found, np.memmap)


def test_rows_added_piece_by_piece_are_one_array_and_can_be_taken_back(tmp_path):
    with StoreWriter(tmp_path, "data.json") as writer:
        pairs = writer.growing("pairs", "i4", (2,))
        for rows in ([[1, 2], [3, 4]], [[5, 6], [7, 8]]):
            pairs.append(rows)
        pairs.truncate(1)
        pairs.append([[9, 10]])
        writer.finish({})
    assert opened(tmp_path).array("pairs", "i4", (2, 2)).tolist() == [[1, 2], [9, 10]]


def test_a_folder_is_complete_only_with_its_manifest(tmp_path):
    with StoreWriter(tmp_path, "data.json") as writer:
        writer.array("numbers", np.arange(3))
    with pytest.raises(FileNotFoundError, match=r"no prepared numbers here .data.json is missing.*again"):
        opened(tmp_path)


def test_an_error_leaves_neither_the_new_files_nor_those_of_an_older_preparation(folder):
    write(folder, {"older": np.arange(3)})
    assert sorted(path.name for path in folder.iterdir()) == ["data.json", "older"]
    (folder / "mine.txt").write_text("kept")

    def write_until_full():
        with StoreWriter(folder, "data.json") as writer:
            writer.array("numbers", np.arange(3))
            writer.json("words.json", {})
            raise OSError("full")

    with pytest.raises(OSError, match="full"):
        write_until_full()
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_a_manifest_cannot_have_files_elsewhere_removed(folder):
    other = folder.parent / "other"
    other.write_text("kept")
    content = json.loads((folder / "data.json").read_text())
    names = ["../other", str(other), "", ".", 3, None]
    (folder / "data.json").write_text(json.dumps(content | {"files": names}))
    StoreWriter(folder, "data.json")
    assert other.read_text() == "kept"


FILES = {
    "empty": lambda path: path.write_bytes(b""),
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
    "no file": lambda path: path.unlink(),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a pipe": lambda path: (path.unlink(), os.mkfifo(path)),
    "too large numbers": lambda path: path.write_bytes(b"\1" * 48),
    "numbers below 0": lambda path: path.write_bytes(b"\xff" * 48),
}


@pytest.mark.parametrize("damage", FILES)
def test_a_damaged_array_is_one_error_that_names_the_file(folder, damage):
    FILES[damage](folder / "numbers")
    with pytest.raises(ValueError, match=r"^[^\n]*data.numbers: damaged .*prepare the data again, or train again$"):
        opened(folder).array("numbers", "i8", (6,), below=6)


@pytest.mark.parametrize(
    "entry",
    [
        None, [], {}, {"dtype": "<i8"}, {"shape": [6]}, {"dtype": "<i8", "shape": 6}, {"dtype": "<i8", "shape": [-6]},
        {"dtype": "<i8", "shape": ["6"]}, {"dtype": "<i8", "shape": [10**30]}, {"dtype": "|O", "shape": [6]},
        {"dtype": "<i8", "shape": [6.0]}, {"dtype": ["<i8"], "shape": [6]}, {"dtype": "<i8", "shape": [3, 2]},
        {"dtype": "<f8", "shape": [6]},
    ],
)  # fmt: skip
def test_a_manifest_that_says_something_else_of_an_array_is_damaged(folder, entry):
    content = json.loads((folder / "data.json").read_text())
    (folder / "data.json").write_text(json.dumps(content | {"arrays": {"numbers": entry}}))
    with pytest.raises(ValueError, match=r"^[^\n]*: damaged .*prepare the data again"):
        opened(folder).array("numbers", "i8", (None,))


@pytest.mark.parametrize("change", [{"format": 0}, {"format": True}, {"format": None}, {"arrays": []}])
def test_a_manifest_of_another_format_is_refused(folder, change):
    content = json.loads((folder / "data.json").read_text())
    (folder / "data.json").write_text(json.dumps(content | change))
    with pytest.raises(ValueError, match="damaged"):
        opened(folder)
    (folder / "data.json").write_text(json.dumps(content | {"format": 99}))
    with pytest.raises(ValueError, match="format 99, from a newer chainrule"):
        opened(folder)


@pytest.mark.parametrize("content", [[], [1, 6], [0, 5], [0, 4, 3, 6]])
def test_offsets_out_of_order_are_damaged(tmp_path, content):
    write(tmp_path, {"starts": np.array(content, dtype=np.int64), "right": np.array([0, 2, 2, 6])})
    store = opened(tmp_path)
    assert store.offsets("right", 6).tolist() == [0, 2, 2, 6]
    for name, shortest in (("starts", 0), ("right", 1)):
        with pytest.raises(ValueError, match=rf"{name}: damaged .expected where each row begins"):
            store.offsets(name, 6, shortest=shortest)


def test_content_that_does_not_fit_is_damage_of_its_file(folder):
    store = opened(folder)
    with pytest.raises(ValueError, match=r"data\.json: damaged .KeyError"), store.checked():
        store.manifest["missing"]
    with pytest.raises(ValueError, match=r"words\.json: damaged .the file is missing"):
        store.json("words.json")
