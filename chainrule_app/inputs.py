"""Data of all kinds as plain files, which the readers of tasks take: every verb and method reads the same.

Data in memory are written to files: frames become CSV, texts lines, arrays .npy, .png, wav or MIDI files. So are
standard input, several files and JSON records. The files live as long as the `Inputs` that wrote them.
"""

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from itertools import chain, count, islice, takewhile
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

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
    png_of,
    samples_of,
    sentence,
    words_of,
    write_csv,
    write_text,
)
from chainrule_app.readers.gather import KINDS, RECORDS, gather, must_gather, paths_of, shared_folder
from chainrule_app.readers.origin import InMemory, Origin
from chainrule_app.readers.packed import plain_name
from chainrule_app.readers.text import STDIN
from chainrule_app.tasks.run_directory import FRAME

if TYPE_CHECKING:
    from chainrule_app.tasks.task import Task

_OF_FILES = [task for task, kind in KINDS.items() if kind == "files"]  # tasks that read a file for each item
_OF_TEXTS = ("text", "tag", "translate", "caption")  # tasks that read no table


class Inputs:
    """Data as plain files, written to a temporary directory where the reader of the task needs it."""

    def __init__(
        self,
        task: str = "",
        *,
        rate: int | None = None,
        text_column: str | None = None,
        keep_paths: bool = False,
        answers: bool = True,  # whether texts to classify come with their labels
    ):
        self.task, self._rate, self._text_column, self._keep_paths = task, rate, text_column or "", keep_paths
        self._answers = answers
        self.description: dict[str, Any] | None = None
        self.options: dict[str, Any] = {}
        self.items: int | None = None  # rows or strings in memory; each has one row in a result
        self._folder = TemporaryDirectory(prefix="chainrule-")
        self.names: dict[str, str] = {}  # of sources, by the path of the file that they were written to
        self._records: set[str] = set()  # the files of these that hold records

    def __enter__(self) -> "Inputs":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._folder as folder:
            if not isinstance(error, ValueError):
                return
            names = {str(file): file.stem for file in sorted(Path(folder).iterdir())} | self.names
            message = str(error)
            if named := [name for name in names if name in message]:
                longest = max(named, key=len)  # the caller knows the argument, not the file it was written to
                if longest not in self.names:
                    message = self._indexed(message, Path(longest), "index", 0)
                elif longest in self._records:
                    message = self._indexed(message, Path(longest), "record", 1)
                raise ValueError(message.replace(longest, names[longest])) from None

    def _indexed(self, message: str, file: Path, word: str, first: int) -> str:
        """Replace the line of a written file, or a file in a written folder, by the number of its item from `first`."""
        folder = file.is_dir()
        before, sign, rest = message.partition(f"{file}{os.sep}" if folder else f"{file} line ")
        digits = "".join(takewhile(str.isdecimal, rest))
        if folder and digits:
            return f"{before}{file} index {int(digits)}{rest[len(digits) + len('.wav') :]}"
        named = file.suffix == ".csv"
        if not sign or int(digits) <= named:
            return message
        item = self._item_at(file, int(digits)) - named + first
        return f"{before}{file} {word} {item}{rest.removeprefix(digits)}"

    def _item_at(self, file: Path, line: int) -> int:
        with file.open(encoding="utf-8", newline="") as lines:
            if file.suffix == ".csv":
                rows = csv.reader(lines)
                return sum(rows.line_num < line for _ in rows)
            if self.task == "tag":
                return sum(text == "\n" for text in islice(lines, line - 1))
        return line - 1

    def options_of(self, kind: type) -> dict[str, Any]:
        """Return the options that describe the written files, as far as an options dataclass has them."""
        known = {field.name for field in fields(kind)}
        return {name: value for name, value in self.options.items() if name in known}

    @property
    def written(self) -> bool:
        return any(Path(self._folder.name).iterdir())

    def path(self, data: Any, name: str = "data", *, labels: Any = None, rate: int | None = None) -> Any:
        """Return the path of data as passed, or of the file that holds them; or a table in memory."""
        written = self._path(data, name, labels, rate)
        if labels is not None and isinstance(data, str | os.PathLike):
            raise ValueError("labels: expected images in an array with them, got a path: files have their own")
        if labels is not None and not str(written).endswith(".npz"):
            raise ValueError("labels: expected images in an array with them; of texts pass list(zip(texts, labels))")
        return written

    def _path(self, data: Any, name: str, labels: Any, rate: int | None) -> Any:
        if isinstance(data, str | os.PathLike):
            return self.plain(existing(os.fspath(data), name), name, streams=self.task == "text" or name == "file")
        file = Path(self._folder.name) / name
        if frames.is_frame(data) or is_dataset(data):
            frame = frames.as_frame(frame_of(data) if is_dataset(data) else data)
            is_series = getattr(data, "ndim", 2) == 1 or not (hasattr(data, "columns") or is_dataset(data))
            return self._named(self._write_frame(frame, file, rate, is_series=is_series))
        if hasattr(data, "ndim") and hasattr(data, "dtype"):
            data = as_array(data)
            if data.dtype.kind not in "OUT" or not data.ndim:
                return self._named(self._write_array(data, file, labels, rate))
            data = data.tolist()
        items = items_of(data, name)
        first = next(items)
        return self._named(self._write_rows(first, chain((first,), items), file, labels, rate))

    @staticmethod
    def _named(written: "Path | InMemory") -> "str | InMemory":
        return str(written) if isinstance(written, Path) else written

    def plain(self, source: str, name: str, *, streams: bool = False) -> str:
        """Return the path of a source as one plain file or folder; see `chainrule_app.readers.gather.must_gather`."""
        kind = KINDS.get(self.task)
        if kind is None or self._keep_paths:
            return source
        if not must_gather(source, kind, streams=streams):
            return paths_of(source)[0]
        folder = Path(self._folder.name) / name
        folder.mkdir()
        made = str(gather(source, folder, kind, self._text_column))
        if plain_name(paths_of(source)[0]).endswith(RECORDS):
            self._name_columns()
            if kind != "text":  # texts have lines of their own
                self._records.add(made)
        named = shared_folder(source) if kind == "files" else source
        self.names[made] = "standard input" if source == STDIN else str(named)
        return made

    def text(self, text: str) -> str:
        """Write a text to a file and return its path."""
        self.task = self.task or "text"
        return str(write_text(Path(self._folder.name) / "text.txt", [text]))

    def file(self, data: Any, name: str) -> str:
        """Return the path of one image (H, W) or (H, W, 3), one sound or one piano roll."""
        if isinstance(data, str | os.PathLike) or self.task not in _OF_FILES:
            return self.path(data, name)
        array = as_array(data)
        if array.dtype.kind not in "uifb" or not array.ndim:
            raise ValueError(f"{name}: expected a path or an array of numbers, got {type(data).__name__}: {data!r:.40}")
        if self.task in ("sound", "music"):
            return str(next(Path(self.path([array], name)).iterdir()))
        file = Path(self._folder.name) / f"{name}.png"
        file.write_bytes(png_of(array, name))
        return str(file)

    def paths(self, data: Any) -> list[str]:
        """List the files of a prediction: one per image for captions, else one."""
        if self.task != "caption" or isinstance(data, str | os.PathLike):
            return [self.path(data)]
        if hasattr(data, "columns"):
            raise ValueError("data: a frame holds no images: pass a list of arrays or paths")
        images = [self.file(image, f"data[{number}]") for number, image in enumerate(items_of(data))]
        self.items = len(images)
        return images

    def _write_frame(self, native: Any, file: Path, rate: int | None, *, is_series: bool) -> "Path | InMemory":
        from chainrule_app.typed_columns import frame_table

        frame = frame_table(native, Origin(file.name, "index"), self.description)
        texts = [name for name in frame.names if name in frame.texts]
        of_texts = self.task in _OF_TEXTS or (is_series and self.task in ("", "classify"))
        if texts == frame.names[-1:] and of_texts:
            cells = frame.columns[-1].cells(slice(None), file.name).texts()
            rows = [cell or "" for cell in cells if cell is not None or self.task not in ("", "text")]
            return self._write_rows("", iter(rows), file, None, rate)
        if self.task == "translate" and len(texts) == len(frame.names) == 2:
            return self._write_rows(("", ""), (tuple(cells) for _, cells in frame.rows()), file, None, rate)
        if self.task in (*_OF_TEXTS, *_OF_FILES):
            raise ValueError(
                f"{file.name}: a frame holds no data of the task {self.task}: pass a list of one of its columns"
            )
        self.task = self.task or ("forecast" if is_series else "table")
        if self.description is None and self.task in ("table", "forecast"):
            self.description = frames.describe(native, frame)
            if self.task == "table":
                frames.check_restorable(native, frame, self.description)
        self.items = len(frame)
        if self.task != "classify":
            return frame
        self.options |= labelled_columns(frame, texts, self._text_column)
        rows = ([cell or "" for cell in cells] for _, cells in frame.rows())
        return write_csv(file.with_suffix(".csv"), frame.names, rows)

    def _write_array(self, array: Any, file: Path, labels: Any, rate: int | None) -> "Path | InMemory":
        if array.dtype.kind not in "uifb" or array.ndim == 0:
            raise ValueError(f"{file.name}: expected an array of numbers, got {array.dtype} of shape {array.shape}")
        if not array.size:
            raise ValueError(f"{file.name}: expected at least one row, got an array of shape {array.shape}")
        self.items = len(array)
        if not self.task:
            self.task = "image" if array.ndim > 2 else "table" if array.ndim == 2 else "forecast"
        if self.task == "classify" and array.ndim > 2:
            self.task = "classify-images"
        if self.task in ("image", "classify-images"):
            if labels is None:
                np.save(file.with_suffix(".npy"), array)
                return file.with_suffix(".npy")
            if np.shape(labels) != array.shape[:1]:
                got = f"{len(labels)}" if np.ndim(labels) == 1 else f"an array of shape {np.shape(labels)}"
                raise ValueError(f"labels: expected one for each of {len(array)} images, got {got}")
            np.savez(file.with_suffix(".npz"), images=array, labels=np.asarray(labels))
            return file.with_suffix(".npz")
        if self.task == "caption":
            with ZipFile(file.with_suffix(".zip"), "w") as archive:
                for number, image in enumerate(array):
                    archive.writestr(f"{number:06}.png", png_of(image, file.name))
            return file.with_suffix(".zip")
        if self.task == "sound":
            return self._write_sounds(np.atleast_2d(array), file, rate)
        if self.task == "music":
            return self._write_rolls(array if array.ndim > 2 else [array], file)
        if array.ndim > 2 or self.task not in ("table", "forecast"):
            raise ValueError(f"{file.name}: an array of shape {array.shape} holds no data of the task {self.task}")
        from chainrule_app.typed_columns import array_table

        self.description = self.description or {"library": "numpy", "dtype": str(array.dtype), "columns": {}}
        return array_table(array, Origin(file.name, "index"))

    def _write_rows(
        self, first: Any, rows: Iterator[Any], file: Path, labels: Any, rate: int | None
    ) -> "Path | InMemory":
        if isinstance(first, str):
            return self._write_lines(self._counted(all_of(str, rows, file.name)), file)
        if isinstance(first, Real):
            return self._write_array(np.array(list(all_of(Real, rows, file.name))), file, labels, rate)
        if hasattr(first, "ndim"):
            return self._write_arrays(first, rows, file, labels, rate)
        if hasattr(first, "__array_interface__"):  # an image of Pillow
            return self._write_arrays(np.asarray(first), map(np.asarray, rows), file, labels, rate)
        if is_clip(first) and self.task in ("", "sound"):
            self.task, own = "sound", first["sampling_rate"]
            return self._write_sounds(samples_of(rows, own, file.name), file, own)
        if isinstance(first, Mapping):
            return self._write_records(first, self._counted(all_of(Mapping, rows, file.name)), file)
        if not isinstance(first, Sequence) or isinstance(first, bytes) or not (first or self.task == "tag"):
            raise ValueError(f"{file.name}: {EXPECTED}, got a list of {type(first).__name__}")
        rows = self._counted(all_of(Sequence, rows, file.name))
        if self.task == "tag" or not isinstance(first[0], str):
            if first and isinstance(first[0], Real):
                raise ValueError(
                    f"{file.name}: rows of numbers: pass them as an array, numpy.array(rows), or as a frame"
                )
            self.task = self.task or "tag"
            return write_text(file.with_suffix(".tsv"), map(sentence(file.name), count(), rows))
        self.task = self.task or "classify"
        if self.task not in ("classify", "translate"):
            raise ValueError(f"{file.name}: a run of the task {self.task} takes no pairs")
        pairs = map(pair_of(file.name, one_line=self.task == "translate"), count(), rows)
        if self.task == "translate":
            return write_text(file.with_suffix(".tsv"), ("\t".join(pair) + "\n" for pair in pairs))
        return write_csv(file.with_suffix(".csv"), ["text", "label"], pairs)

    def _counted(self, rows: Iterator[Any]) -> Iterator[Any]:
        self.items = 0
        for row in rows:
            self.items += 1
            yield row

    def _write_lines(self, rows: Iterator[str], file: Path) -> Path:
        self.task = self.task or "text"
        if self.task == "tag":  # sentences of words between blanks
            words = (list(filter(None, row.replace("\t", " ").split(" "))) for row in rows)
            return write_text(file.with_suffix(".tsv"), (words_of(number, row) for number, row in enumerate(words)))
        if self.task == "classify":
            if self._answers:
                raise ValueError(f"{file.name}: expected pairs of a text and its label, got strings alone")
            # other columns keep a row of an empty text, and tell that the first one is a header
            cells = ([row, number, number] for number, row in enumerate(rows))
            return write_csv(file.with_suffix(".csv"), ["text", "no label", "no label (2)"], cells)
        if self.task not in _OF_TEXTS:
            raise ValueError(f"{file.name}: a run of the task {self.task} takes no strings")
        broken = False

        def ended() -> Iterator[str]:
            nonlocal broken
            for number, row in enumerate(rows):
                broken = broken or "\n" in row or "\r" in row
                yield f"{number:06}.png\t{row}\n" if self.task == "caption" else f"{row}\n"

        path = write_text(file.with_suffix(".txt"), ended())
        if broken and self.task != "text":
            raise ValueError(f"{file.name}: a row of the task {self.task} is one line, but a string has a line break")
        if self.task == "text":
            self.options.setdefault("reading", "stream" if broken else "lines")
        return path

    def _write_records(self, first: Mapping[str, Any], rows: Iterator[Any], file: Path) -> "Path | InMemory":
        self.task = self.task or "table"
        if self.task in (*_OF_FILES, "tag"):
            remedy = "of sentences, each of pairs of a word and a tag"
            remedy = remedy if self.task == "tag" else f"as [row[{next(iter(first), 'image')!r}] for row in data]"
            raise ValueError(f"{file.name}: dictionaries hold no data of the task {self.task}: pass a list {remedy}")
        from chainrule_app.typed_columns import records_table

        records = list(rows)
        self.items = len(records)
        table = records_table(records, Origin(file.name, "index"), self.description)
        if self.task in ("table", "forecast"):
            return table
        cells = ([cell or "" for cell in cells] for _, cells in table.rows())
        if self.task == "translate":
            return self._write_rows(("", ""), map(tuple, cells), file, None, None)
        return write_csv(file.with_suffix(".csv"), table.names, cells)

    def _name_columns(self) -> None:
        """Say that the columns are named where numbers may name them."""
        if self.task in ("table", "forecast"):
            self.options["header"] = "yes"

    def _write_arrays(
        self, first: Any, rows: Iterator[Any], file: Path, labels: Any, rate: int | None
    ) -> "Path | InMemory":
        if first.ndim == 1 and self.task in ("", "sound"):
            self.task = "sound"
            return self._write_sounds(map(as_array, rows), file, rate)
        if self.task == "music":
            return self._write_rolls(map(as_array, rows), file)
        arrays = list(map(as_array, rows))
        if len({array.shape for array in arrays}) > 1:
            raise ValueError(f"{file.name}: expected arrays of one shape, got {arrays[0].shape} and others")
        return self._write_array(np.stack(arrays), file, labels, rate)

    def _write_rolls(self, rolls: Iterable[Any], file: Path) -> Path:
        from chainrule_app.readers.music import KEYS, LOWEST, midi_file

        file.mkdir()
        for number, roll in enumerate(rolls):
            where = f"{file.name} index {number}"
            if np.shape(roll)[1:] != (KEYS,):
                remedy = f"of the 128 notes of MIDI pass roll[:, {LOWEST}:{LOWEST + KEYS}]"
                raise ValueError(f"{where}: expected piano rolls (T, {KEYS}), got {np.shape(roll)}: {remedy}")
            try:
                content = midi_file(roll, frames_per_quarter=self._rate or 4)
            except ValueError as error:
                raise ValueError(f"{where}: {error}") from None
            (file / f"{number:06}.mid").write_bytes(content)
        return file

    def _write_sounds(self, sounds: Iterable[Any], file: Path, rate: int | None) -> Path:
        from chainrule_app.readers.sounds.sound_file import write_wav

        rate = rate or self._rate
        if rate is None:
            raise ValueError("rate: expected the samples a second of the sounds, such as rate=8000")
        self._rate = rate
        file.mkdir()
        for number, sound in enumerate(sounds):
            write_wav(file / f"{number:06}.wav", amplitudes_of(sound, f"{file.name} index {number}"), int(rate))
            self.items = number + 1
        return file


def inputs_of(run: "Task[Any]", *, answers: bool = True) -> Inputs:
    """Return the `Inputs` for the verbs and methods of a run."""
    column = getattr(run.data, "text_column", None)
    inputs = Inputs(run.name, rate=getattr(run, "rate", None), text_column=column, answers=answers)
    if (run.path / FRAME).is_file():
        inputs.description = frames.load_description(run.path / FRAME)
    run.source_names = inputs.names
    return inputs
