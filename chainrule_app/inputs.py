"""Data of all kinds as plain files, which the readers of tasks take: every verb and method reads the same.

Data in memory are written to files: frames become CSV, texts lines, arrays .npy, .png, wav or MIDI files. So are
standard input, several files and JSON records. The files live as long as the `Inputs` that wrote them.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain, count, takewhile
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

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
    item_at,
    items_of,
    labelled_columns,
    pair_of,
    png_of,
    record_cells,
    samples_of,
    sentence,
    words_of,
    write_csv,
    write_rolls,
    write_text,
    write_zip,
)
from chainrule_app.readers.array_file import is_array
from chainrule_app.readers.gather import KINDS, gather, must_gather, paths_of, shared_folder
from chainrule_app.readers.record_keys import Keys, found_keys, keys_of, located_records, record_lines
from chainrule_app.readers.records import holds_records
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
        keys: Keys | None = None,  # of records
        header: bool = True,  # whether the run reads tables with a header
        keep_paths: bool = False,
        answers: bool = True,  # whether texts to classify come with their labels
    ):
        self.task, self._rate, self._keys, self._keep_paths = task, rate, keys or Keys(), keep_paths
        self._header, self._answers = header, answers
        self.description: dict[str, Any] | None = None
        self.options: dict[str, Any] = {}
        self.items: int | None = None  # rows or strings in memory; each has one row in a result
        self._folder = TemporaryDirectory(prefix="chainrule-")
        self._found, self.tells = "", False  # the keys that records told, and whether to say so at the end
        self.names: dict[str, str] = {}  # of sources, by the path of the file that they were written to
        self._records: set[str] = set()  # the files of these with a line for each record

    def __enter__(self) -> "Inputs":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._folder as folder:
            if error is None and self._found and self.tells:
                print(printable(self._found), file=sys.stderr)
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
        named = file.suffix == ".csv" and (self._header or self.task not in ("table", "forecast"))
        if not sign or int(digits) <= named:
            return message
        item = item_at(file, int(digits), self.task) - named + first
        return f"{before}{file} {word} {item}{rest.removeprefix(digits)}"

    def options_of(self, kind: type) -> dict[str, Any]:
        """Return the options that describe the written files, as far as an options dataclass has them."""
        known = {field.name for field in fields(kind)}
        return {name: value for name, value in self.options.items() if name in known}

    @property
    def written(self) -> bool:
        return any(Path(self._folder.name).iterdir())

    def path(self, data: Any, name: str = "data", *, labels: Any = None, rate: int | None = None) -> str:
        """Return the path of data: as passed, or of the file that holds them."""
        written = self._path(data, name, labels, rate)
        if labels is not None and isinstance(data, str | os.PathLike):
            raise ValueError("labels: expected images in an array with them, got a path: files have their own")
        if labels is not None and not written.endswith(".npz"):
            raise ValueError("labels: expected images in an array with them; of texts pass list(zip(texts, labels))")
        return written

    def _path(self, data: Any, name: str, labels: Any, rate: int | None) -> str:
        if isinstance(data, str | os.PathLike):
            return self.plain(existing(os.fspath(data), name), name, streams=self.task == "text" or name == "file")
        file = Path(self._folder.name) / name
        if frames.is_frame(data) or is_dataset(data):
            frame = frames.as_frame(frame_of(data) if is_dataset(data) else data)
            is_series = getattr(data, "ndim", 2) == 1 or not (hasattr(data, "columns") or is_dataset(data))
            return str(self._write_frame(frame, file, rate, is_series=is_series))
        if hasattr(data, "ndim") and hasattr(data, "dtype"):
            data = as_array(data)
            if data.dtype.kind not in "OUT" or not data.ndim:
                return str(self._write_array(data, file, labels, rate))
            data = data.tolist()
        items = items_of(data, name)
        first = next(items)
        return str(self._write_rows(first, chain((first,), items), file, labels, rate))

    def plain(self, source: str, name: str, *, streams: bool = False) -> str:
        """Return the path of a source as one plain file or folder; see `chainrule_app.readers.gather.must_gather`."""
        kind = KINDS.get(self.task)
        if kind is None or self._keep_paths:
            return source
        if not must_gather(source, kind, streams=streams):
            return paths_of(source)[0]
        folder = Path(self._folder.name) / name
        folder.mkdir()
        first = paths_of(source)[0]
        holds = first != STDIN and kind != "files" and holds_records(first)
        alone = name.endswith("target")  # of two files, which may have other keys
        if holds and not alone:
            self._find_keys(next(located_records([first]), (first, {})), kind)
        made = str(gather(source, folder, kind, Keys() if alone else self._keys))
        if holds or (kind == "rows" and is_array(first)):
            self._name_columns()
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

    def _write_frame(self, frame: Any, file: Path, rate: int | None, *, is_series: bool) -> Path:
        if not frame.columns or not len(frame):
            raise ValueError(f"{file.name}: expected at least one row, got none")
        texts = [name for name in frame.columns if str(frame[name].dtype) in ("String", "Categorical", "Enum")]
        of_texts = self.task in _OF_TEXTS or (is_series and self.task in ("", "classify"))
        if texts == frame.columns[-1:] and of_texts:
            rows = frame[texts[0]]
            rows = rows.drop_nulls() if self.task in ("", "text") else rows.fill_null("")
            return self._write_rows("", iter(rows.to_list()), file, None, rate)
        if self.task in ("translate", "tag"):
            rows = frame.iter_rows(named=True)
            first = next(rows)
            return self._write_records(first, chain([first], rows), file)
        if self.task in (*_OF_TEXTS, *_OF_FILES):
            raise ValueError(
                f"{file.name}: a frame holds no data of the task {self.task}: pass a list of one of its columns"
            )
        self.task = self.task or ("forecast" if is_series else "table")
        file = file.with_suffix(".csv")
        if self.description is None:
            self.description = frames.describe(frame)
            if self.task == "table" and (spelt := frames.text_columns(self.description, frame)):
                self.options["types"] = dict.fromkeys(spelt, "categorical")
        if self.task == "classify":
            self.options |= labelled_columns(frame, texts, self._keys.text or "")
        self._name_columns()
        frames.write_csv(frame, file, self.description, local=self.task != "table", header=self._header)
        self.items = len(frame)
        return file

    def _write_array(self, array: Any, file: Path, labels: Any, rate: int | None) -> Path:
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
            return write_zip(array, file)
        if self.task == "sound":
            return self._write_sounds(np.atleast_2d(array), file, rate)
        if self.task == "music":
            return self._write_rolls(array if array.ndim > 2 else [array], file)
        if array.ndim > 2 or self.task not in ("table", "forecast"):
            raise ValueError(f"{file.name}: an array of shape {array.shape} holds no data of the task {self.task}")
        rows = array[:, None] if array.ndim == 1 else array
        self.description = self.description or {"library": "numpy", "dtype": str(array.dtype), "columns": {}}
        names = ["value"] if array.ndim == 1 else [f"column{number}" for number in range(1, rows.shape[1] + 1)]
        rows = rows.astype(int) if array.dtype.kind == "b" else rows
        self._name_columns()
        return write_csv(file.with_suffix(".csv"), names if self._header else None, rows.tolist())

    def _write_rows(self, first: Any, rows: Iterator[Any], file: Path, labels: Any, rate: int | None) -> Path:
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
            return self._write_records(first, all_of(Mapping, rows, file.name), file)
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

    def _write_records(self, first: Mapping[str, Any], rows: Iterator[Any], file: Path) -> Path:
        self.task = self.task or "table"
        if self.task in _OF_FILES:
            remedy = f"as [row[{next(iter(first), 'image')!r}] for row in data]"
            raise ValueError(f"{file.name}: dictionaries hold no data of the task {self.task}: pass a list {remedy}")
        if self.task in ("translate", "tag"):
            located = ((f"{file.name} index {number}", row) for number, row in enumerate(self._counted(rows)))
            self._find_keys((f"{file.name} index 0", first), KINDS[self.task])
            lines = record_lines(located, KINDS[self.task], self._keys)
            return write_text(file.with_suffix(".tsv"), (f"{line}\n" for line in lines))
        for name, value in first.items():
            frames.check_cells(f"{file.name} index 0: {name!r}", [value])
        self._name_columns()
        cells = record_cells(first, self._counted(rows), file.name)
        return write_csv(file.with_suffix(".csv"), list(first) if self._header else None, cells)

    def _name_columns(self) -> None:
        """Say that the columns are named where numbers may name them."""
        if self.task in ("table", "forecast"):
            self.options["header"] = "yes"

    def _write_arrays(self, first: Any, rows: Iterator[Any], file: Path, labels: Any, rate: int | None) -> Path:
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
        from chainrule_app.readers.music import KEYS, LOWEST

        return write_rolls(rolls, file, self._rate or 4, LOWEST, KEYS)

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
    keys = replace(keys_of(run.data), answers=answers)
    header = getattr(getattr(run, "schema", None), "header", True)
    inputs = Inputs(run.name, rate=getattr(run, "rate", None), keys=keys, header=header, answers=answers)
    if (run.path / FRAME).is_file():
        inputs.description = frames.load_description(run.path / FRAME)
    run.source_names = inputs.names
    inputs.tells = True  # a training tells in its own lines
    return inputs
