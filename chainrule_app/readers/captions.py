"""Prepare captioned images on disk: pixels of one size, a vocabulary, captions as numbers; in bounded memory."""

import io
import json
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from chainrule.data import Batch, Batches, Shuffled, WordVocabulary
from chainrule.option_error import OptionError, UserError, option
from chainrule.typed_json import read_value
from chainrule_app.readers.delimited import DelimitedFile
from chainrule_app.readers.held_out import hold_out
from chainrule_app.readers.images.folder import Fit, Reading, decoded, images_in
from chainrule_app.readers.images.held import HeldImages
from chainrule_app.readers.journal import Journal, Journals
from chainrule_app.readers.members import Member, Members
from chainrule_app.readers.origin import HeldRows, origin_of
from chainrule_app.readers.pairs import encode_sentence
from chainrule_app.readers.ragged import Ragged
from chainrule_app.readers.records import records
from chainrule_app.readers.row_order import Rows, in_order
from chainrule_app.readers.sources import IMAGES, check_file, fingerprint, holds_records, is_path, plain_name
from chainrule_app.readers.store import Ids, Store, StoreWriter
from chainrule_app.readers.text import open_bytes

_IMAGE_NAMES = ("image", "file_name", "filename", "image_name", "image_file", "image_path", "path", "file")
_CAPTION_NAMES = ("caption", "captions", "caption_text", "text", "description", "comment", "sentence", "sentences")
CAPTIONS = (".txt", ".tsv", ".csv", ".json", ".jsonl", ".ndjson", ".parquet")
_MOST_BYTES = 1 << 28  # of JSON, which is held in memory
_NUMBERED = re.compile(r"#\d+$")


@dataclass(frozen=True)
class Caption:
    """A caption of an image, and the number of its line, from 1."""

    line: int
    image: str
    text: str


def read_captions(path: str | Path | HeldRows) -> Iterator[Caption]:
    """Yield the captions of a file, compressed or not.

    A line is `name.jpg TAB caption`, the name with or without a number (`name.jpg#3`); or, under a header with the
    columns image and caption, or others so called, in any order, it is a row of CSV. Records have such keys, and one
    caption or a list of them. A .json file is a list of records, or an object with images and annotations, as in COCO.
    Images may have several captions.
    """
    if isinstance(path, HeldRows):
        for index, (text,) in path:
            yield Caption(index, str(index), text)
        return
    if holds_records(path):
        yield from _recorded_captions(path)
        return
    if plain_name(path).endswith(".json"):
        yield from _coco_captions(path)
        return
    file = DelimitedFile(path)
    with closing(file.lines()) as lines:
        _, first = next(lines, (1, ""))
    header = [cell.strip().strip('"').lower() for cell in first.split(",")]
    commas = bool({*header} & {*_IMAGE_NAMES} and {*header} & {*_CAPTION_NAMES})
    places = _places(header, str(path)) if commas else [0, 1]
    for line, cells in islice(file.quoted_rows(","), 1, None) if commas else file.plain_rows("\t"):
        columns = [cell.strip() for cell in cells]
        if not any(columns):
            continue
        if commas and len(columns) == len(header):
            columns = [columns[place] for place in places]
        if len(columns) != 2 or not columns[0]:
            expected = "a name, a comma and a caption" if commas else "a name, a tab and a caption"
            raise ValueError(
                f"{path} line {line}: expected {expected}, got {(',' if commas else chr(9)).join(cells)!r:.80}"
            )
        if not columns[1]:
            raise ValueError(f"{path} line {line}: the caption of {columns[0]!r:.80} is empty: remove the line")
        yield Caption(line, _NUMBERED.sub("", columns[0]), columns[1])


def _places(names: Sequence[str], where: str) -> list[int]:
    """Return the places of the names of an image and of its caption, whatever their order."""
    places = []
    for what, usual in (("image", _IMAGE_NAMES), ("caption", _CAPTION_NAMES)):
        found = [name for name in names if name.lower() in usual]
        if len(found) != 1:
            got = f"{len(found)} ({', '.join(found)})" if found else f"none among {', '.join(names)[:80]}"
            raise ValueError(
                f"{where}: expected one column for the {what}, named for example {usual[0]}, got {got}: "
                "rename the columns"
            )
        places.append(names.index(found[0]))
    return places


def _recorded_captions(path: str | Path) -> Iterator[Caption]:
    """Yield the captions of records, numbered as the records from 1."""
    image, text = caption_keys(path)
    for number, (line, record) in enumerate(records(str(path)), 1):
        name, found = record.get(image), record.get(text)
        captions = found if isinstance(found, list) else [found]
        if (
            not isinstance(name, str)
            or not captions
            or not all(isinstance(one, str) and one.strip() for one in captions)
        ):
            raise ValueError(
                f"{path}: record {number}: expected the name of an image under {image!r} and a caption under {text!r}, "
                f"got {record!r:.80}"
            )
        for caption in captions:
            yield Caption(line, _NUMBERED.sub("", name), " ".join(str(caption).split()))


def caption_keys(path: str | Path) -> tuple[str, str]:
    """Return the keys of the images and of the captions of records."""
    names = list(next((record for _, record in records(str(path))), {}))
    image, text = (names[place] for place in _places(names, f"{path}: record 1"))
    return image, text


def _coco_captions(path: str | Path) -> Iterator[Caption]:
    """Yield the captions of COCO's annotations, numbered as the annotations from 1."""
    with open_bytes(check_file(path)) as file:
        raw = file.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise ValueError(
            f"{path}: expected at most {_MOST_BYTES >> 20} MiB of JSON, got more: write JSON Lines instead"
        )
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError):
        content = None
    fields = content if isinstance(content, dict) else {}
    images, annotations = fields.get("images"), fields.get("annotations")
    if not isinstance(images, list) or not isinstance(annotations, list):
        raise ValueError(f"{path}: expected captions in the format of COCO, a JSON object with images and annotations")
    names = {}
    for number, image in enumerate(images, 1):
        if not isinstance(image, dict) or not isinstance(image.get("file_name"), str):
            raise ValueError(f"{path}: image {number}: expected an object with id and file_name, got {image!r:.80}")
        names[str(image.get("id"))] = image["file_name"]
    for number, annotation in enumerate(annotations, 1):
        fields = annotation if isinstance(annotation, dict) else {}
        text, name = fields.get("caption"), names.get(str(fields.get("image_id")))
        if not isinstance(text, str) or not text.strip() or name is None:
            raise ValueError(
                f"{path}: annotation {number}: expected an object with a caption and the image_id of one of the "
                f"{len(names):,} images, got {annotation!r:.80}"
            )
        yield Caption(number, name, " ".join(text.split()))


def captions_in(images: str | Path | HeldImages) -> Member:
    """Return the file of captions in an archive or a folder of images."""
    if isinstance(images, HeldImages):
        raise OptionError("captions", "expected those of the images, got none", "pass a list, in their order")
    try:
        files = Members(images, CAPTIONS, "file of captions").files
    except ValueError:
        files = []
    named = [file for file in files if "caption" in file.name.lower()] or files
    if len(named) != 1:
        listing = ", ".join(file.name for file in named) or "none"
        raise UserError(
            f"{images}: expected one file of captions in it, got {listing:.120}", f"name it with {option('captions')}"
        )
    return named[0]


class ImageStore:
    """The images of an archive or a folder, found by the last part of their names."""

    def __init__(self, path: str | Path | HeldImages, size: int, fit: Fit = "crop"):
        self.path = path  # the archive or the folder, see `Members`; or images in memory, named by their indices
        self._reading = Reading(size=(size, size), colour="rgb", fit=fit)
        self._held = path if isinstance(path, HeldImages) else None
        self._members: dict[str, Member] = {}
        if isinstance(path, HeldImages):
            self._members = {
                str(index): Member(str(index), path.label(index), io.BytesIO) for index in range(len(path))
            }
            return
        for member in Members(path, IMAGES, "image").files:
            other = self._members.setdefault(PurePosixPath(member.name).name, member)
            if other is not member:
                raise ValueError(f"{path}: {other.name} and {member.name} have the same name: rename one")

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def image(self, name: str, journal: Journal | None = None) -> npt.NDArray[np.uint8]:
        """(3, S, S), values from 0 to 255."""
        if self._held is not None:
            return self._held.pixels(int(name), self._reading)[0]
        return decoded(self._members[name], self._reading, journal)[0]


@dataclass(frozen=True)
class CaptionedImages:
    """N images, each with one caption or several."""

    images: npt.NDArray[np.uint8]  # (N, 3, S, S), values from 0 to 255
    captions: Ragged  # the captions of the first image, then of the second, ..., each with its `<eos>`
    offsets: Ids  # (N + 1,) where the captions of each image begin, and their number

    def __len__(self) -> int:
        return len(self.images)

    def captions_of(self, image: int) -> range:
        """Return the indices of an image's captions."""
        return range(*self.offsets[image : image + 2].tolist())

    def batch(self, images: Ids, captions: Ids, mirrored: npt.NDArray[np.bool_] | None = None) -> Batch:
        """Return the chosen captions as x, conditioned on their images, some of them mirrored."""
        x, lengths = self.captions.padded(captions)
        pixels = np.array(self.images[images])
        if mirrored is not None:
            pixels[mirrored] = pixels[mirrored, :, :, ::-1]
        return Batch(x, lengths, context=torch.from_numpy(pixels))


def caption_batches(
    captioned: CaptionedImages, batch_size: int, seed: int = 0, shard: tuple[int, int] = (0, 1)
) -> Batches:
    """Images in the order of `Shuffled`, half of them mirrored, and of each a caption, which take turns in epochs."""
    order = Shuffled(len(captioned), batch_size, seed, shard, name="captioned")
    turn = np.random.default_rng(seed).integers(1 << 32, size=len(captioned))
    counts = np.diff(captioned.offsets)

    @lru_cache(maxsize=1)
    def mirrored(epoch: int) -> npt.NDArray[np.bool_]:
        random = np.random.default_rng([seed, epoch])
        random.permutation(len(captioned))  # skip the draws of the order
        return np.asarray(random.random(len(captioned)) < 0.5)

    def make(step: int, rows: Rows) -> Batch:
        epoch, images = step // order.steps_per_epoch, order.own(rows)
        captions = captioned.offsets[images] + (turn[images] + epoch) % counts[images]
        return captioned.batch(images, captions, mirrored(epoch)[images])

    return Batches(order, make)


def caption_evaluation(captioned: CaptionedImages) -> Iterator[Batch]:
    """Every caption of every image once, in order."""
    images = np.repeat(np.arange(len(captioned)), np.diff(captioned.offsets))
    return (captioned.batch(images[captions], captions) for captions in in_order(len(images), 64))


_MANIFEST = "captions.json"


@dataclass(frozen=True)
class PreparedCaptions:
    """Captioned images in a prepared folder."""

    vocabulary: WordVocabulary  # words of the training captions
    train: CaptionedImages  # train, valid: images and captions, pixels read from the disk on demand
    valid: CaptionedImages
    manifest: dict[str, Any]  # content of captions.json: counts and fingerprints


def prepare_captions(
    directory: str | Path,  # created if it is missing; `captions.json` is the last file written into it
    images: str | Path | HeldImages,  # a zip file or a folder, or images in memory
    captions: str | Path | HeldRows,
    *,
    dev_images: str | Path | HeldImages | None = None,  # those to hold out, if they are not among `images`
    validation_captions: str
    | Path
    | HeldRows
    | None = None,  # of the images to hold out; if not given, some images are drawn
    size: int = 64,  # S, every image becomes (S, S)
    fit: Fit = "crop",  # how; see `chainrule_app.readers.images.Reading`
    min_count: int = 3,  # rarer words are `<unk>`
    max_length: int = 100,  # most words of a caption
    lower_case: bool = True,  # whether captions are read in lower case
    validation_fraction: float = 0.1,
    seed: int = 0,
    vocabulary: WordVocabulary | None = None,  # vocabulary of other captions
) -> PreparedCaptions:
    """Read images and captions and write them into a directory."""
    store = ImageStore(images, size, fit)
    train = captions_by_image(captions, store, lower_case=lower_case)
    if validation_captions is None:
        if len(train) < 2:
            raise ValueError(f"{captions}: expected captions of at least two images, one to hold out")
        chosen = zip(list(train), hold_out(len(train), validation_fraction, seed), strict=True)
        valid = {name: train.pop(name) for name, held in chosen if held}
        dev_store, dev_file = store, captions
    else:
        dev_store = store if dev_images is None else ImageStore(dev_images, size, fit)
        valid, dev_file = captions_by_image(validation_captions, dev_store, lower_case=lower_case), validation_captions
    if vocabulary is None:
        texts = (f"{caption.text}\n" for own in train.values() for caption in own)
        vocabulary = WordVocabulary.fit(texts, eos=True, min_count=min_count)
    files = {
        "source": images,
        "captions": captions,
        "validation": dev_images,
        "validation_captions": validation_captions,
    }
    counts, journals = {}, Journals(directory)
    with StoreWriter(directory, _MANIFEST) as writer:
        vocabulary.save(writer.path("vocabulary.json"))
        for part, captioned, from_store, file in (
            ("train", train, store, captions),
            ("valid", valid, dev_store, dev_file),
        ):
            rows = [
                encode_sentence(vocabulary, caption.text, max_length, origin_of(file), caption.line)
                for own in captioned.values()
                for caption in own
            ]
            sentences = Ragged.of(rows)
            sentences.save(writer, f"{part}.symbols", f"{part}.offsets")
            writer.array(f"{part}.captions", np.cumsum([0, *map(len, captioned.values())]))
            pixels = writer.growing(f"{part}.images", np.uint8, (3, size, size))
            with journals.open(part, f"{size} {fit}") as journal:
                for name in captioned:
                    pixels.append(from_store.image(name, journal)[None])
            counts[part] = {
                "images": len(captioned),
                "captions": len(rows),
                "words": len(sentences.values),
                "unknown": int((sentences.values == vocabulary.unknown).sum()),
            }
        manifest = {
            **{name: None if path is None else store_fingerprint(path) for name, path in files.items()},
            **counts,
            "words": len(vocabulary),
            "size": size,
            "fit": fit,
        }
        writer.finish(manifest)
    journals.forget()
    return open_captions(directory)


def open_captions(directory: str | Path) -> PreparedCaptions:
    """Open a folder written by `prepare_captions`; raises the errors of `Store`."""
    store = Store(directory, _MANIFEST, "captions")
    vocabulary = WordVocabulary.load(store.directory / "vocabulary.json")
    with store.checked():
        manifest, size = store.manifest, store.manifest["size"]
        train, valid = (
            _open_part(store, part, read_value(int, manifest[part]["images"], f"{part}.images"), size, vocabulary)
            for part in ("train", "valid")
        )
    return PreparedCaptions(vocabulary, train, valid, manifest)


def _open_part(store: Store, part: str, count: int, size: int, vocabulary: WordVocabulary) -> CaptionedImages:
    captions = Ragged.load(store, f"{part}.symbols", f"{part}.offsets", len(vocabulary), shortest=1)
    images = store.array(f"{part}.images", np.uint8, (count, 3, size, size))
    return CaptionedImages(images, captions, store.offsets(f"{part}.captions", len(captions), rows=count, shortest=1))


def captions_by_image(
    path: str | Path | HeldRows, store: ImageStore, *, lower_case: bool = True
) -> dict[str, list[Caption]]:
    """Return the captions of each image, in lower case or as they are, in the order in which the images come first."""
    by_image, where = dict[str, list[Caption]](), origin_of(path)
    named: dict[str, str] = {}  # with its folders, which the store may have others of
    for caption in read_captions(path):
        name = PurePosixPath(caption.image.replace("\\", "/")).name
        if name not in store:
            raise ValueError(f"{where.at(caption.line)}: the image {caption.image} is not in {store.path}")
        if named.setdefault(name, caption.image) != caption.image:
            raise ValueError(
                f"{where.at(caption.line)}: {named[name]} and {caption.image} have the same name: rename one"
            )
        text = caption.text.lower() if lower_case else caption.text
        by_image.setdefault(name, []).append(replace(caption, image=name, text=text))
    if not by_image:
        raise ValueError(f"{path}: expected captions, got none")
    return by_image


def store_fingerprint(path: Any) -> dict[str, Any]:
    """`name`, number of `bytes` and `sha256` of a file, or of the images of a folder."""
    if is_path(path) and Path(path).is_dir():
        return images_in(Path(path)).fingerprint()
    return fingerprint(path)
