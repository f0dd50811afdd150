"""The kind of data that a path names, by its ending or, for a folder or an archive, by the names of the files in it."""

from collections import Counter
from pathlib import Path

from chainrule_app.readers.array_file import holds_rows, is_array
from chainrule_app.readers.members import ARCHIVES, TARS, file_names
from chainrule_app.readers.packed import plain_name
from chainrule_app.readers.record_keys import has_texts
from chainrule_app.readers.records import first_record, holds_records

TABLES = (".csv", ".tsv", ".parquet")
IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
SOUNDS = (".wav", ".flac", ".ogg", ".mp3", ".aif", ".aiff")
MIDI = (".mid", ".midi", ".kar", ".rmi")


def is_table(path: str | Path) -> bool:
    """Return whether the name of a file says that it is a table; records of JSON with texts or messages are texts.

    >>> is_table("rows.csv"), is_table("rows.CSV.gz"), is_table("rows.txt")
    (True, True, False)
    """
    name = plain_name(path)
    return name.endswith(TABLES) or (holds_records(path) and not has_texts(first_record(path)))


def kind_of(path: str | Path) -> str | None:
    """Return table, image, sound, music or tag, whichever a path names; None if its names do not tell.

    Images are a folder or archive with an image, an image, an array or an idx file; sounds and music a file, or a
    folder or archive mostly of them.
    """
    file, _ = file_and_array(path)
    name = file.name.lower()
    if is_table(path):
        return "table"
    if file.is_dir() or (name.endswith(ARCHIVES) and file.is_file()):
        return _kind_within(file)
    if is_array(path) and holds_rows(path):
        return "table"
    endings = {"image": (".npz", ".npy", *IMAGES), "sound": SOUNDS, "music": MIDI}
    if "-idx" in name:
        return "image"
    tagged = "tag" if plain_name(path).endswith((".conllu", ".conll")) else None
    return next((kind for kind in endings if name.endswith(endings[kind])), tagged)


def _kind_within(path: Path) -> str | None:
    counts, tar = Counter[str](), path.is_file() and path.name.lower().endswith(TARS)
    for number, name in enumerate(file_names(path)):
        ending = Path(name).suffix.lower()
        if ending in IMAGES and not (tar and number):
            return "image"  # of a .tar archive the first tells: its list takes long to read
        counts["sound" if ending in SOUNDS else "music" if ending in MIDI else ""] += 1
    return next((kind for kind in ("sound", "music") if 2 * counts[kind] > counts.total()), None)


def is_images(path: str | Path) -> bool:
    """Return whether a path names images; see `kind_of`."""
    return kind_of(path) == "image"


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
        from chainrule_app.readers.text import no_such_file

        raise no_such_file(path, "file or folder")
