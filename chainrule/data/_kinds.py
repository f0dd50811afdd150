"""The kind of data that a path names, by its ending or, for a folder or an archive, by the names of the files in it."""

from itertools import islice
from pathlib import Path

from chainrule.data._members import ARCHIVES, TARS, file_names, is_visible
from chainrule.data._packed import open_unpacked, plain_name

TABLES = (".csv", ".tsv", ".parquet")
RECORDS = (".jsonl", ".ndjson")
_FIRST_RECORD = 1 << 20  # bytes
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SOUNDS = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff")
MIDI = (".mid", ".midi")


def is_table(path: str | Path) -> bool:
    """Return whether the name of a file says that it is a table; records of JSON with the key "text" are texts.

    >>> is_table("rows.csv"), is_table("rows.CSV.gz"), is_table("rows.txt")
    (True, True, False)
    """
    name = plain_name(path)
    return name.endswith(TABLES) or (name.endswith(RECORDS) and not _has_texts(Path(path)))


def _has_texts(path: Path) -> bool:
    """Return whether the first record of a file of JSON Lines has the key "text"."""
    try:
        with open_unpacked(path) as file:
            return b'"text"' in file.readline(_FIRST_RECORD)
    except (OSError, ValueError, ImportError):
        return False


def is_images(path: str | Path) -> bool:
    """Return whether a path names images: a folder or archive with images, an image, an array or an idx file."""
    path, _ = file_and_array(path)
    name = path.name.lower()
    if path.is_dir() or (name.endswith(ARCHIVES) and path.is_file()):
        names = file_names(path)  # of a .tar archive the first tells: its list takes long to read
        if path.is_file() and name.endswith(TARS):
            names = islice(names, 1)
        return any(is_visible(name, IMAGES) for name in names)
    return name.endswith((".npz", ".npy", *IMAGES)) or "-idx" in name


def file_and_array(path: str | Path) -> tuple[Path, str | None]:
    """Return a path, and the name of the array after the colon of `x.npz:array`.

    >>> file_and_array("x.npz:train")[1], file_and_array("rows.csv")[1]
    ('train', None)
    """
    file, colon, array = str(path).rpartition(":")
    return (Path(file), array) if colon and file.lower().endswith(".npz") else (Path(path), None)


def check_path(path: str | Path) -> None:
    """Raise FileNotFoundError if there is no such file or folder; - is standard input."""
    if str(path) != "-" and not file_and_array(path)[0].exists():
        from chainrule.data._text import no_such_file

        raise no_such_file(path, "file or folder")


def is_sounds(path: str | Path) -> bool:
    """Return whether a path holds sounds: a sound file, or a folder or an archive mostly of sounds."""
    return _are_mostly(path, SOUNDS)


def is_music(path: str | Path) -> bool:
    """Return whether a path holds music: a MIDI file, or a folder or an archive mostly of MIDI files."""
    return _are_mostly(path, MIDI)


def _are_mostly(path: str | Path, endings: tuple[str, ...]) -> bool:
    if str(path).lower().endswith(endings):
        return True
    names = list(file_names(Path(path)))
    found = sum(name.lower().endswith(endings) for name in names)
    return found > len(names) - found


def is_tagged(path: str | Path) -> bool:
    """Return whether the name of a file says that it holds words with labels."""
    return plain_name(path).endswith((".conllu", ".conll"))
