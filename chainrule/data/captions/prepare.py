"""Prepare captioned pictures on disk: pixels of one size, a vocabulary, captions as numbers; in bounded memory."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.data.arrays import open_array
from chainrule.data.atomic import read_json, write_json
from chainrule.data.captions.caption_file import Caption, read_captions
from chainrule.data.captions.captioned import CaptionedPictures
from chainrule.data.captions.picture_store import PictureStore
from chainrule.data.images.folder import Fit, folder_fingerprint
from chainrule.data.levels import load_vocabulary
from chainrule.data.pairs.prepare import encode_sentence
from chainrule.data.pairs.sentences import Sentences
from chainrule.data.source import fingerprint
from chainrule.data.words import WordVocabulary

FORMAT = 1
_MANIFEST = "captions.json"


@dataclass(frozen=True)
class PreparedCaptions:
    """What `prepare_captions` left.

    Attributes:
        vocabulary: words of the captions to train on.
        train, valid: pictures and captions, pixels read from the disk as they are asked for.
        manifest: what captions.json holds: counts and fingerprints.
    """

    vocabulary: WordVocabulary
    train: CaptionedPictures
    valid: CaptionedPictures
    manifest: dict[str, Any]


def prepare_captions(
    directory: str | Path,
    pictures: str | Path,
    captions: str | Path,
    *,
    dev_pictures: str | Path | None = None,
    dev_captions: str | Path | None = None,
    size: int = 64,
    fit: Fit = "crop",
    min_count: int = 3,
    max_length: int = 100,
    lower_case: bool = True,
    validation_fraction: float = 0.1,
    seed: int = 0,
) -> PreparedCaptions:
    """Read pictures and captions and write them into a directory.

    Args:
        directory: made if it is missing; `captions.json` is the last file written into it.
        pictures: a zip file or a folder.
        captions: see `read_captions`. Pictures without one are left out.
        dev_pictures: those to hold out, if they are not among `pictures`.
        dev_captions: of the pictures to hold out; where there is none, a part of the pictures is, drawn from the seed.
        size: S, every picture becomes (S, S).
        fit: how; see `chainrule.data.images.Reading`.
        min_count: rarer words are `<unk>`.
        max_length: most words of a caption.
        lower_case: whether captions are read in lower case.
        validation_fraction: of the pictures.
        seed: of those held out.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a caption has no picture, a picture cannot be read, a line is none, there are too few pictures.
    """
    if not 8 <= size <= 1024:
        raise ValueError(f"size: expected from 8 to 1024 pixels, got {size}")
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _MANIFEST).unlink(missing_ok=True)
    store = PictureStore(pictures, size, fit)
    train = captions_by_picture(captions, store, lower_case=lower_case)
    if dev_captions is None:
        if len(train) < 2:
            raise ValueError(f"{captions}: expected captions of at least two pictures, one to hold out")
        count = max(1, round(len(train) * validation_fraction))
        names = list(train)
        held_out = {names[place] for place in np.random.default_rng(seed).permutation(len(names))[:count]}
        valid = {name: train.pop(name) for name in names if name in held_out}
        dev_store, dev_file = store, captions
    else:
        dev_store = store if dev_pictures is None else PictureStore(dev_pictures, size, fit)
        valid, dev_file = captions_by_picture(dev_captions, dev_store, lower_case=lower_case), dev_captions
    texts = (f"{caption.text}\n" for own in train.values() for caption in own)
    vocabulary = WordVocabulary.fit(texts, eos=True, min_count=min_count)
    vocabulary.save(directory / "vocabulary.json")
    counts = {}
    for part, captioned, from_store, file in (
        ("train", train, store, captions),
        ("valid", valid, dev_store, dev_file),
    ):
        encoded = [
            [encode_sentence(vocabulary, caption.text, max_length, str(file), caption.line) for caption in own]
            for own in captioned.values()
        ]
        rows = [row for own in encoded for row in own]
        sentences = Sentences.of(rows)
        np.save(directory / f"{part}.symbols.npy", sentences.symbols)
        np.save(directory / f"{part}.ends.npy", sentences.ends)
        np.save(directory / f"{part}.captions.npy", np.cumsum([len(own) for own in encoded]))
        _write_pictures(directory / f"{part}.pictures.npy", from_store, captioned, size)
        unknown = sum(int((row == vocabulary.unknown).sum()) for row in rows)
        counts[part] = {
            "pictures": len(captioned),
            "captions": len(rows),
            "words": int(sentences.ends[-1]),
            "unknown": unknown,
        }
    files = {"source": pictures, "captions": captions, "validation": dev_pictures, "dev_captions": dev_captions}
    manifest = {
        "format": FORMAT,
        **{name: None if path is None else store_fingerprint(path) for name, path in files.items()},
        "counts": counts,
        "words": len(vocabulary),
        "size": size,
        "fit": fit,
    }
    write_json(directory / _MANIFEST, manifest)
    return open_captions(directory)


def open_captions(directory: str | Path) -> PreparedCaptions:
    """Open what `prepare_captions` wrote.

    Raises:
        FileNotFoundError: there is none, or its preparation was cut short.
        ValueError: a file in it was changed or cut.
    """
    directory = Path(directory)
    if not is_prepared(directory):
        raise FileNotFoundError(f"{directory}: no prepared captions here ({_MANIFEST} is missing): prepare them again")
    manifest = read_json(directory / _MANIFEST)
    vocabulary = load_vocabulary(directory / "vocabulary.json")
    if manifest.get("format") != FORMAT or not isinstance(vocabulary, WordVocabulary):
        raise ValueError(f"{directory / _MANIFEST}: damaged, or a newer chainrule wrote it: prepare the captions again")
    parts = []
    for part in ("train", "valid"):
        try:
            pictures, symbols, ends, captions = (
                open_array(directory / f"{part}.{what}.npy", "iu" if what == "pictures" else "i")
                for what in ("pictures", "symbols", "ends", "captions")
            )
            size = manifest["size"]
            if pictures.dtype != np.uint8 or pictures.shape != (len(captions), 3, size, size):
                raise ValueError(f"expected pixels of {len(captions)} pictures")
            if len(ends) != captions[-1] or ends[-1] != len(symbols):
                raise ValueError("the captions do not end where the words do")
            if any(stops.ndim != 1 or (np.diff(stops, prepend=0) < 1).any() for stops in (ends, captions)):
                raise ValueError("a caption or a picture ends before it begins")
            if int(symbols.min()) < 0 or int(symbols.max()) >= len(vocabulary):
                raise ValueError("a word is not in the vocabulary")
        except (OSError, ValueError, EOFError, IndexError, KeyError) as error:
            raise ValueError(f"{directory / part}: damaged ({error}): prepare the captions again") from None
        parts.append(CaptionedPictures(pictures, Sentences(symbols, np.array(ends)), np.array(captions)))
    return PreparedCaptions(vocabulary, parts[0], parts[1], manifest)


def is_prepared(directory: Path) -> bool:
    """Whether `prepare_captions` has finished there."""
    return (directory / _MANIFEST).is_file()


def captions_by_picture(path: str | Path, store: PictureStore, *, lower_case: bool = True) -> dict[str, list[Caption]]:
    """The captions of each picture, in lower case or as they are, in the order in which the pictures come first.

    Raises:
        ValueError: a picture is missing, or there is no caption; the message names file and line.
    """
    found: dict[str, list[Caption]] = {}
    for caption in read_captions(path):
        if caption.picture not in store:
            raise ValueError(f"{path} line {caption.line}: the picture {caption.picture} is not in {store.path}")
        caption = replace(caption, text=caption.text.lower()) if lower_case else caption
        found.setdefault(caption.picture, []).append(caption)
    if not found:
        raise ValueError(f"{path}: expected captions, got none")
    return found


def store_fingerprint(path: str | Path) -> dict[str, Any]:
    """`name`, number of `bytes` and `sha256` of a file, or of the pictures of a folder."""
    return folder_fingerprint(Path(path)) if Path(path).is_dir() else fingerprint(path)


def _write_pictures(path: Path, store: PictureStore, captioned: dict[str, Any], size: int) -> None:
    header = {"descr": "|u1", "fortran_order": False, "shape": (len(captioned), 3, size, size)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for pixels in _pictures(store, captioned):
            file.write(pixels.tobytes())


def _pictures(store: PictureStore, captioned: dict[str, Any]) -> Iterator[np.ndarray]:
    for name in captioned:
        yield store.picture(name)
