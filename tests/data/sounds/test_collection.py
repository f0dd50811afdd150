"""Which sounds a folder, an archive or a file holds, and their labels."""

import io
import tarfile
import zipfile

import numpy as np
import pytest
from sound_files import tone, wav_bytes, write

from chainrule_app.readers import members as members
from chainrule_app.readers import sources as _sources
from chainrule_app.readers.sounds.prepare import Labelling, label_number, ordered
from chainrule_app.readers.sounds.sound_file import Collection, read_sound
from chainrule_app.readers.sources import kind_of, recognise

NAMES = ["b/2.wav", "a/1.wav", "a/3.WAV"]


def archive(path, names=NAMES):
    contents = {name: wav_bytes(tone(50 + place)) for place, name in enumerate(names)} | {"read.me": b"x"}
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as target:
            for name, content in contents.items():
                target.writestr(name, content)
        return path
    with tarfile.open(path, "w:gz") as target:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            target.addfile(info, io.BytesIO(content))
    return path


def test_a_folder_is_searched_and_hidden_files_are_not(tmp_path):
    for name in [*NAMES, "a/.hidden.wav", ".cache/5.wav"]:
        write(tmp_path / name, tone(9), format="WAV")
    (tmp_path / "notes.txt").write_text("x")
    assert [file.name for file in Collection(tmp_path).files] == ["a/1.wav", "a/3.WAV", "b/2.wav"]


@pytest.mark.parametrize("name", ["sounds.tar.gz", "sounds.zip"])
def test_an_archive_is_read_in_its_order_again_and_again(tmp_path, name):
    files = Collection(archive(tmp_path / name)).files  # which keep the archive open
    assert [file.name for file in files] == NAMES
    for place in (2, 0, 1, 1):
        (samples,) = read_sound(files[place], 8000)
        assert len(samples) == 50 + place


def test_a_fingerprint_is_of_names_and_contents(tmp_path):
    first = Collection(archive(tmp_path / "a.zip")).fingerprint()
    assert first["name"] == "a.zip"
    assert first["sha256"] == Collection(archive(tmp_path / "a.tar.gz")).fingerprint()["sha256"]
    renamed = Collection(archive(tmp_path / "b.zip", ["b/2.wav", "a/1.wav", "a/4.wav"])).fingerprint()
    assert first["bytes"] == renamed["bytes"]
    assert first["sha256"] != renamed["sha256"]


def test_what_holds_no_sound_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such file or folder: expected sounds"):
        Collection(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"expected sounds \(\.wav, .*\), found none"):
        Collection(tmp_path)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(ValueError, match="expected a sound"):
        Collection(tmp_path / "a.txt")
    for name in ("a.tar.gz", "a.zip"):
        (tmp_path / name).write_bytes(b"no archive")
        with pytest.raises(ValueError, match="not a readable archive"):
            Collection(tmp_path / name)


def test_sounds_are_told_from_other_data(tmp_path):
    write(tmp_path / "sounds" / "1.wav", tone(9))
    (tmp_path / "sounds" / "labels.csv").write_text("x")
    assert kind_of(tmp_path / "sounds") is None
    write(tmp_path / "sounds" / "2.wav", tone(9))
    assert kind_of(tmp_path / "sounds") == "sound"
    assert kind_of(tmp_path / "new.flac") == "sound"
    assert kind_of(archive(tmp_path / "a.tar.gz")) == "sound"
    assert kind_of(tmp_path / "missing") is None


def test_a_folder_is_listed_once_to_tell_its_kind(tmp_path, monkeypatch):
    """It was listed for images, for sounds and for music."""
    listed = []
    monkeypatch.setattr(_sources, "file_names", lambda path: (listed.append(path), ["a.mid", "b.MID", "c.txt"])[1])
    assert recognise(tmp_path) == "music"
    assert listed == [tmp_path]


@pytest.mark.parametrize(
    ("pattern", "name", "label"),
    [
        ("{label}_*", "a/7_jackson_0.wav", "7"),
        ("*_{label}_*", "7_jackson_0.wav", "jackson"),
        ("*-{label}", "x-y-z.wav", "y-z"),
        ("take.{label}", "take.1.wav", "1"),
        (None, "birds/robin/3.wav", "robin"),
    ],
)
def test_a_label_is_read_off_a_name(pattern, name, label):
    assert Labelling(pattern)(name) == label


def test_wrong_patterns_and_names_that_do_not_fit_are_named():
    for pattern in ("*_x", "{label}{label}"):
        with pytest.raises(ValueError, match=r"label_pattern: expected \{label\} once"):
            Labelling(pattern)
    with pytest.raises(ValueError, match=r"a\.wav: does not fit label_pattern"):
        Labelling("{label}_*")("a.wav")
    with pytest.raises(ValueError, match="not in a folder named after its label"):
        Labelling(None)("a.wav")


def test_labels_have_an_order_and_numbers():
    assert ordered(["10", "9", "9"]) == ["9", "10"]
    assert label_number(["9", "10"], "10") == 1
    with pytest.raises(ValueError, match="label: expected one of 9, 10, got 'x'"):
        label_number(["9", "10"], "x")
    assert np.all(np.array(ordered(map(str, range(30)))) == np.arange(30).astype(str))


@pytest.mark.parametrize("name", ["sounds.zip", "sounds.tar.gz"])
def test_a_file_that_inflates_to_gigabytes_is_not_read(tmp_path, name, monkeypatch):
    monkeypatch.setattr(members, "LARGEST", 1 << 20)
    path = tmp_path / name
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
            target.writestr("a.wav", bytes(3 << 20))
    else:
        with tarfile.open(path, "w:gz") as target:
            info = tarfile.TarInfo("a.wav")
            info.size = 3 << 20
            target.addfile(info, io.BytesIO(bytes(3 << 20)))
    for read in (lambda: Collection(path).fingerprint(), lambda: list(read_sound(Collection(path).files[0], 8000))):
        with pytest.raises(
            ValueError, match=r"a\.wav: 3 MiB, more than the limit of 1 for a file in an archive: unpack"
        ):
            read()


@pytest.mark.parametrize("name", ["sounds.zip", "sounds.tar.gz"])
def test_a_damaged_archive_is_refused_in_one_line_wherever_it_is_damaged(tmp_path, name):
    with zipfile.ZipFile(tmp_path / "sounds.zip", "w", zipfile.ZIP_DEFLATED) as target:
        target.writestr("a.wav", wav_bytes(tone(500)))
    path = tmp_path / name if name.endswith(".zip") else archive(tmp_path / name)
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            for file in Collection(path).files:
                list(read_sound(file, 8000))
        except ValueError as error:
            refused += "\n" not in str(error)
    assert refused > 5  # a flipped byte of a name or of the padding of a tar file does no harm
