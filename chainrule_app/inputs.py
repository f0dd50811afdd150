"""Data of all kinds as the readers of tasks take them: paths of files, or data in memory as they are.

Standard input, several files and JSON records are gathered in one plain file, which lives as long as the `Inputs` that
wrote it. Nothing that is in memory is written to a file.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from itertools import chain, takewhile
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from chainrule.option_error import OptionError
from chainrule.printing import printable
from chainrule_app import frames
from chainrule_app.heavy import np
from chainrule_app.items import (
    EXPECTED,
    all_of,
    amplitudes_of,
    as_array,
    existing,
    frame_of,
    is_clip,
    is_dataset,
    items_of,
    labelled_columns,
    pair_of,
    samples_of,
    sentence_of,
    words_of,
)
from chainrule_app.readers.gather import gather
from chainrule_app.readers.origin import HeldRows, HeldText, InMemory, Origin
from chainrule_app.readers.record_keys import Keys, found_keys, keys_of, located_records, pairs_in, sentences_in
from chainrule_app.readers.sources import KINDS, holds_records, is_array, must_gather, paths_of, shared_folder
from chainrule_app.readers.text import STDIN
from chainrule_app.tasks.run_directory import FRAME

if TYPE_CHECKING:
    from chainrule_app.tasks.task import Task

_OF_FILES = [task for task, kind in KINDS.items() if kind == "files"]  # tasks that read a file for each item
_OF_TEXTS = ("text", "tag", "translate", "caption")  # tasks that read no table


class Inputs:
    """Data as the reader of a task takes them, and what they tell: the task, and options that describe them."""

    def __init__(
        self,
        task: str = "",
        *,
        rate: int | None = None,
        keys: Keys | None = None,  # of records
        keep_paths: bool = False,
        answers: bool = True,  # whether texts to classify come with their labels
    ):
        self.task, self._rate, self._keys, self._keep_paths = task, rate, keys or Keys(), keep_paths
        self._answers = answers
        self.description: dict[str, Any] | None = None
        self.options: dict[str, Any] = {}
        self.items: int | None = None  # rows or strings in memory; each has one row in a result
        self._folders = ExitStack()  # of gathered files, which exist until the end
        self.names: dict[str, str] = {}  # of sources, by the path of the file that they were gathered in
        self._found, self.tells = "", False  # the keys that records told, and whether to say so at the end
        self._records: set[str] = set()  # the files of these with a line for each record

    def __enter__(self) -> "Inputs":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._folders:
            if error is None and self._found and self.tells:
                print(printable(self._found), file=sys.stderr)
            message = str(error)
            named = [name for name in self.names if name in message] if isinstance(error, ValueError) else []
            if named:
                longest = max(named, key=len)  # the caller knows the source, not the file that it was gathered in
                message = self._recorded(message, Path(longest)) if longest in self._records else message
                raise ValueError(message.replace(longest, self.names[longest])) from None

    def _recorded(self, message: str, file: Path) -> str:
        """Replace the line of a gathered file by the number of its record."""
        before, sign, rest = message.partition(f"{file} line ")
        digits = "".join(takewhile(str.isdecimal, rest))
        named = file.suffix == ".csv"
        if not sign or int(digits) <= named:
            return message
        with file.open(encoding="utf-8", newline="") as lines:
            ends = [number for number, text in enumerate(lines, 1) if self.task != "tag" or text == "\n"]
        record = sum(end < int(digits) for end in ends) + 1 - named
        return f"{before}{file} record {record}{rest.removeprefix(digits)}"

    def options_of(self, kind: type) -> dict[str, Any]:
        """Return the options that describe the data, as far as an options dataclass has them."""
        known = {field.name for field in fields(kind)}
        return {name: value for name, value in self.options.items() if name in known}

    @property
    def gathered(self) -> bool:
        """Tell if sources were gathered in files, which are gone after the `Inputs`."""
        return bool(self.names)

    def source(self, data: Any, name: str = "data", *, labels: Any = None, rate: int | None = None) -> "str | InMemory":
        """Return a path as passed, or of the file that sources were gathered in; or data in memory for a reader."""
        is_file = isinstance(data, str | os.PathLike)
        if labels is not None and is_file:
            raise OptionError("labels", "expected images in an array with them, got a path", "files have their own")
        self._rate = rate or self._rate
        made = self._source(data, Origin(name, "index"), labels)
        if labels is not None and self.task not in ("image", "classify-images"):
            raise OptionError("labels", "expected images in an array with them; of texts pass list(zip(texts, labels))")
        return made

    def _source(self, data: Any, origin: Origin, labels: Any) -> "str | InMemory":
        if isinstance(data, str | os.PathLike):
            streams = self.task == "text" or origin.name == "file"
            return self.plain(existing(os.fspath(data), origin.name), origin.name, streams=streams)
        if frames.is_frame(data) or is_dataset(data):
            frame = frames.as_frame(frame_of(data) if is_dataset(data) else data)
            is_series = getattr(data, "ndim", 2) == 1 or not (hasattr(data, "columns") or is_dataset(data))
            return self._frame(frame, origin, is_series=is_series)
        if hasattr(data, "ndim") and hasattr(data, "dtype"):
            data = as_array(data)
            if data.dtype.kind not in "OUT" or not data.ndim:
                return self._array(data, origin, labels)
            data = data.tolist()
        items = items_of(data, origin.name)
        first = next(items)
        return self._rows(first, chain((first,), items), origin, labels)

    def plain(self, source: str, name: str, *, streams: bool = False) -> str:
        """Return the path of a source as one plain file or folder; see `chainrule_app.readers.gather.must_gather`."""
        kind = KINDS.get(self.task)
        if kind is None or self._keep_paths:
            return source
        if not must_gather(source, kind, streams=streams):
            return paths_of(source)[0]
        folder = Path(self._folders.enter_context(TemporaryDirectory(prefix="chainrule-")))
        first = paths_of(source)[0]
        holds = first != STDIN and kind != "files" and holds_records(first)
        alone = name.endswith("target")  # of two files, which may have other keys
        if holds and not alone:
            self._find_keys(next(located_records([first]), (first, {})), kind)
        made = str(gather(source, folder, kind, Keys() if alone else self._keys))
        if kind == "rows" and (holds or is_array(first)):
            self.options["header"] = "yes"  # keys are names, also where these are numbers
        if holds and kind != "text":  # texts have lines of their own
            self._records.add(made)
        named = shared_folder(source) if kind == "files" else source
        self.names[made] = "standard input" if source == STDIN else str(named)
        return made

    def _find_keys(self, located: tuple[str, Mapping[str, Any]], kind: str) -> None:
        """Find the keys of pairs and tags in a first record; a run keeps them as options."""
        where, record = located
        keys, self._keys = self._keys, found_keys(record, kind, self._keys, where)
        self.options |= self._keys.options(kind)
        if self._keys != keys:
            self._found = f"{where.removesuffix(': record 1').removesuffix(' index 0')}: {self._keys}"

    def text(self, text: str) -> "InMemory":
        """Return a text in memory as a source."""
        self.task = self.task or "text"
        return HeldText(Origin("text", "index"), [text])

    def item(self, data: Any, name: str) -> "str | InMemory":
        """Return one image (H, W) or (H, W, 3), one sound or one piano roll as a source."""
        if isinstance(data, str | os.PathLike) or self.task not in _OF_FILES:
            return self.source(data, name)
        array, origin = as_array(data), Origin(name, "index")
        if array.dtype.kind not in "uifb" or not array.ndim:
            raise ValueError(f"{name}: expected a path or an array of numbers, got {type(data).__name__}: {data!r:.40}")
        if self.task in ("sound", "music"):
            return self.source([array], name)
        from chainrule_app.readers.images.held import HeldImages

        return HeldImages(origin, [data if hasattr(data, "getexif") else array])

    def sources(self, data: Any) -> "list[str | InMemory]":
        """List the sources of a prediction: one per image for captions, else one."""
        if self.task != "caption" or isinstance(data, str | os.PathLike):
            return [self.source(data)]
        if hasattr(data, "columns"):
            raise OptionError("data", "a frame holds no images", "pass a list of arrays or paths")
        images = [self.item(image, f"data[{number}]") for number, image in enumerate(items_of(data))]
        self.items = len(images)
        return images

    def _frame(self, native: Any, origin: Origin, *, is_series: bool) -> InMemory:
        from chainrule_app.typed_columns import frame_table

        if self.task in ("translate", "tag") and (records := frames.records_of(native)) and len(records[0]) > 1:
            return self._keyed(records, origin)
        table = frame_table(native, origin, self.description)
        texts = [name for name in table.names if name in table.texts]
        of_texts = self.task in _OF_TEXTS or (is_series and self.task in ("", "classify"))
        if texts == table.names[-1:] and of_texts:
            cells = table.columns[-1].cells(slice(None), str(origin)).texts()
            rows = [cell or "" for cell in cells if cell is not None or self.task not in ("", "text")]
            return self._strings(iter(rows), origin)
        if self.task in (*_OF_TEXTS, *_OF_FILES):
            raise ValueError(
                f"{origin}: a frame holds no data of the task {self.task}: pass a list of one of its columns"
            )
        self.task = self.task or ("forecast" if is_series else "table")
        self.items = len(table)
        if self.task == "classify":
            self.options |= labelled_columns(table, texts, self._keys.text or "")
            self._describe_labels(table)
        elif self.description is None:
            self.description = frames.describe(native, table)
            if self.task == "table":
                frames.check_restorable(native, table, self.description)
        return table

    def _describe_labels(self, table: Any) -> None:
        """Keep the type of the column of labels."""
        if self.description is None and (name := self.options.get("label_column")) in table.names:
            column = table.columns[table.names.index(name)]
            self.description = frames.describe_labels(column.take(slice(1000)).to_list())

    def _array(self, array: Any, origin: Origin, labels: Any) -> InMemory:
        if array.dtype.kind not in "uifb" or array.ndim == 0:
            raise ValueError(f"{origin}: expected an array of numbers, got {array.dtype} of shape {array.shape}")
        if not array.size:
            raise ValueError(f"{origin}: expected at least one row, got an array of shape {array.shape}")
        self.items = len(array)
        if not self.task:
            self.task = "image" if array.ndim > 2 else "table" if array.ndim == 2 else "forecast"
        if self.task == "classify" and array.ndim > 2:
            self.task = "classify-images"
        if self.task in ("image", "classify-images", "caption"):
            return self._images(array, origin, labels)
        if self.task == "sound":
            return self._sounds(np.atleast_2d(array), origin)
        if self.task == "music":
            return self._rolls(array if array.ndim > 2 else [array], origin)
        if array.ndim > 2 or self.task not in ("table", "forecast"):
            raise ValueError(f"{origin}: an array of shape {array.shape} holds no data of the task {self.task}")
        from chainrule_app.typed_columns import array_table

        self.description = self.description or {"library": "numpy", "dtype": str(array.dtype), "columns": {}}
        return array_table(array, origin)

    def _rows(self, first: Any, rows: Iterator[Any], origin: Origin, labels: Any) -> InMemory:
        if isinstance(first, str):
            return self._strings(all_of(str, rows, origin), origin)
        if isinstance(first, Real):
            return self._array(np.array(list(all_of(Real, rows, origin))), origin, labels)
        if hasattr(first, "ndim"):
            return self._arrays(first, rows, origin, labels)
        if hasattr(first, "getexif"):  # an image of Pillow
            return self._pictures(list(rows), origin, labels)
        if is_clip(first) and self.task in ("", "sound"):
            self._rate = first["sampling_rate"]
            return self._sounds(samples_of(rows, first["sampling_rate"], origin), origin)
        if isinstance(first, Mapping):
            return self._mappings(first, list(all_of(Mapping, rows, origin)), origin)
        if not isinstance(first, Sequence) or isinstance(first, bytes) or not (first or self.task == "tag"):
            raise ValueError(f"{origin}: {EXPECTED}, got a list of {type(first).__name__}")
        rows = all_of(Sequence, rows, origin)
        if self.task == "tag" or not isinstance(first[0], str):
            if first and isinstance(first[0], Real):
                raise ValueError(f"{origin}: rows of numbers: pass them as an array, numpy.array(rows), or as a frame")
            self.task = self.task or "tag"
            return self._sentences((sentence_of(origin, index, row) for index, row in enumerate(rows)), origin)
        self.task = self.task or "classify"
        if self.task not in ("classify", "translate"):
            raise ValueError(f"{origin}: a run of the task {self.task} takes no pairs")
        pairs = list(rows)
        if self.task == "classify" and self.description is None:
            self.description = frames.describe_labels([pair[-1] for pair in pairs])
        self.items, in_lines = len(pairs), self.task == "translate"
        return HeldRows(origin, [pair_of(origin, index, pair, in_lines=in_lines) for index, pair in enumerate(pairs)])

    def _strings(self, rows: Iterator[str], origin: Origin) -> InMemory:
        self.task = self.task or "text"
        if self.task == "text":
            return self._texts(rows, origin)
        if self.task == "tag":
            words = ([word for word in row.replace("\t", " ").split(" ") if word] for row in rows)
            return self._sentences(((words_of(origin, index, own), ()) for index, own in enumerate(words)), origin)
        if self.task == "classify" and self._answers:
            raise ValueError(f"{origin}: expected pairs of a text and its label, got strings alone")
        if self.task not in ("classify", *_OF_TEXTS):
            raise ValueError(f"{origin}: a run of the task {self.task} takes no strings")
        texts = [(row,) for row in rows]
        if self.task != "classify" and any("\n" in text for (text,) in texts):
            raise ValueError(f"{origin}: a row of the task {self.task} is one line, but a string has a line break")
        self.items = len(texts)
        return HeldRows(origin, texts)

    def _texts(self, rows: Iterator[str], origin: Origin) -> InMemory:
        self.items, broken = 0, False

        def ended() -> Iterator[str]:
            nonlocal broken
            for row in rows:
                broken = broken or "\n" in row
                self.items = (self.items or 0) + 1
                yield f"{row}\n"

        text = HeldText(origin, ended())
        self.options.setdefault("reading", "stream" if broken else "lines")
        return text

    def _sentences(self, sentences: Iterable[tuple[Sequence[str], Sequence[str]]], origin: Origin) -> InMemory:
        from chainrule_app.readers.tagged.conll_file import HeldSentences

        held = HeldSentences(origin, list(sentences))
        self.items = len(held.sentences)
        return held

    def _mappings(self, first: Mapping[str, Any], records: list[Any], origin: Origin) -> InMemory:
        self.task = self.task or "table"
        if self.task in _OF_FILES:
            remedy = f"as [row[{next(iter(first), 'image')!r}] for row in data]"
            raise ValueError(f"{origin}: dictionaries hold no data of the task {self.task}: pass a list {remedy}")
        if self.task in ("translate", "tag"):
            return self._keyed(records, origin)
        from chainrule_app.typed_columns import records_table

        self.items = len(records)
        table = records_table(records, origin, self.description)
        if self.task == "classify":
            self.options |= labelled_columns(table, sorted(table.texts), self._keys.text or "")
            self._describe_labels(table)
        return table

    def _keyed(self, records: list[Any], origin: Origin) -> InMemory:
        """Return the pairs or the tagged sentences of dictionaries, by the names of their keys."""
        self._find_keys((origin.at(0), records[0]), KINDS[self.task])
        if self.task == "translate":
            self.items = len(records)
            return HeldRows(origin, list(pairs_in(records, self._keys, origin)))
        return self._sentences(sentences_in(records, self._keys, origin), origin)

    def _arrays(self, first: Any, rows: Iterator[Any], origin: Origin, labels: Any) -> InMemory:
        if first.ndim == 1 and self.task in ("", "sound"):
            return self._sounds(map(as_array, rows), origin)
        if self.task == "music":
            return self._rolls(map(as_array, rows), origin)
        arrays = list(map(as_array, rows))
        if len({array.shape for array in arrays}) > 1:
            raise ValueError(f"{origin}: expected arrays of one shape, got {arrays[0].shape} and others")
        return self._array(np.stack(arrays), origin, labels)

    def _pictures(self, pictures: list[Any], origin: Origin, labels: Any) -> InMemory:
        self.task = {"": "image", "classify": "classify-images"}.get(self.task, self.task)
        if self.task not in ("image", "classify-images", "caption"):
            raise ValueError(f"{origin}: a run of the task {self.task} takes no images")
        for index, picture in enumerate(pictures):
            if not hasattr(picture, "getexif"):
                raise ValueError(f"{origin.at(index)}: expected rows of one kind, got {picture!r:.80}")
        self.items = len(pictures)
        return self._images(pictures, origin, labels)

    def _images(self, images: Any, origin: Origin, labels: Any) -> InMemory:
        from chainrule_app.readers.images.held import HeldImages

        if labels is not None and self.description is None:
            self.description = frames.describe_labels(np.asarray(labels).tolist())
        return HeldImages(origin, images, labels)

    def _rolls(self, rolls: Iterable[Any], origin: Origin) -> InMemory:
        from chainrule_app.readers.piano_rolls import HeldRolls

        held = HeldRolls(origin, rolls)
        self.items = len(held.files)
        return held

    def _sounds(self, sounds: Iterable[Any], origin: Origin) -> InMemory:
        from chainrule_app.readers.sounds.sound_file import HeldSounds

        self.task = self.task or "sound"
        if self._rate is None:
            raise OptionError("rate", "expected the samples a second of the sounds, such as rate=8000")
        amplitudes = (amplitudes_of(sound, origin.at(index)) for index, sound in enumerate(sounds))
        held = HeldSounds(origin, amplitudes, int(self._rate))
        self.items = len(held.files)
        return held


def inputs_of(run: "Task[Any]", *, answers: bool = True) -> Inputs:
    """Return the `Inputs` for the verbs and methods of a run."""
    keys = replace(keys_of(run.data), answers=answers)
    inputs = Inputs(run.name, rate=getattr(run, "rate", None), keys=keys, answers=answers)
    if (run.path / FRAME).is_file():
        inputs.description = frames.load_description(run.path / FRAME)
    run.source_names = inputs.names
    inputs.tells = True  # a training tells in its own lines
    return inputs
