"""Data of all kinds as plain files, which the readers of tasks take: every verb and method reads the same.

Data in memory are written to files: frames become CSV, texts lines, arrays .npy, .png, wav or MIDI files. So are
standard input, several files and JSON records. The files live as long as the `Inputs` that wrote them.
"""

import csv
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields
from itertools import chain
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from chainrule._app import frames
from chainrule._app.heavy import np
from chainrule._app.tasks.run_directory import FRAME
from chainrule.data._gather import KINDS, RECORDS, gather, must_gather, paths_of, shared_folder
from chainrule.data._packed import plain_name
from chainrule.data._text import STDIN

if TYPE_CHECKING:
    from chainrule._app.tasks.task import Task

_EXPECTED = "expected a path, a frame, an array, or a list of strings, pairs or arrays"
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
        header: bool = True,  # whether the run reads tables with a header
        keep_paths: bool = False,
    ):
        self.task, self._rate, self._text_column, self._keep_paths = task, rate, text_column or "", keep_paths
        self._header = header
        self.description: dict[str, Any] | None = None
        self.options: dict[str, Any] = {}
        self.items: int | None = None  # rows or strings in memory; each has one row in a result
        self._folder = TemporaryDirectory(prefix="chainrule-")
        self.names: dict[str, str] = {}  # of sources, by the path of the file that they were written to

    def __enter__(self) -> "Inputs":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        files = sorted(Path(self._folder.name).iterdir())
        self._folder.cleanup()
        names = {str(file): file.stem for file in files} | self.names
        if isinstance(error, ValueError) and (named := [name for name in names if name in str(error)]):
            # the caller knows the argument, not the file it was written to
            longest = max(named, key=len)
            raise ValueError(str(error).replace(longest, names[longest])) from None

    def options_of(self, kind: type) -> dict[str, Any]:
        """Return the options that describe the written files, as far as an options dataclass has them."""
        known = {field.name for field in fields(kind)}
        return {name: value for name, value in self.options.items() if name in known}

    @property
    def written(self) -> bool:
        return any(Path(self._folder.name).iterdir())

    def path(self, data: Any, name: str = "data", *, labels: Any = None, rate: int | None = None) -> str:
        """Return the path of data: as passed, or of the file that holds them."""
        if isinstance(data, str | os.PathLike):
            if labels is not None:
                raise ValueError("labels: expected images in an array with them, got a path: files have their own")
            return self.plain(_existing(os.fspath(data)), name, streams=self.task == "text" or name == "file")
        file = Path(self._folder.name) / name
        if frames.is_frame(data) or _is_dataset(data):
            frame = frames.as_frame(data.to_polars() if _is_dataset(data) else data)
            is_series = getattr(data, "ndim", 2) == 1 or not (hasattr(data, "columns") or _is_dataset(data))
            return str(self._write_frame(frame, file, rate, is_series=is_series))
        if hasattr(data, "detach") or (hasattr(data, "ndim") and hasattr(data, "dtype")):
            return str(self._write_array(_array(data), file, labels, rate))
        if isinstance(data, Mapping | bytes | Set) or not isinstance(data, Iterable):
            raise ValueError(f"{name}: {_EXPECTED}, got {type(data).__name__}")
        rows = iter(data)
        for first in rows:
            return str(self._write_rows(first, chain((first,), rows), file, labels, rate))
        raise ValueError(f"{name}: expected at least one row, got none")

    def plain(self, source: str, name: str, *, streams: bool = False) -> str:
        """Return the path of a source as one plain file or folder; see `chainrule.data._gather.must_gather`."""
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
        named = shared_folder(source) if kind == "files" else source
        self.names[made] = "standard input" if source == STDIN else str(named)
        return made

    def text(self, text: str) -> str:
        """Write a text to a file and return its path."""
        self.task = self.task or "text"
        return str(_write_text(Path(self._folder.name) / "text.txt", [text]))

    def file(self, data: Any, name: str) -> str:
        """Return the path of one image (H, W) or (H, W, 3), one sound or one piano roll."""
        if isinstance(data, str | os.PathLike) or self.task not in _OF_FILES:
            return self.path(data, name)
        if self.task in ("sound", "music"):
            return str(next(Path(self.path([data], name)).iterdir()))
        file = Path(self._folder.name) / f"{name}.png"
        file.write_bytes(_png(_array(data), name))
        return str(file)

    def paths(self, data: Any) -> list[str]:
        """List the files of a prediction: one per image for captions, else one."""
        if self.task != "caption" or isinstance(data, str | os.PathLike):
            return [self.path(data)]
        return [self.file(image, f"image{number}") for number, image in enumerate(data)]

    def _write_frame(self, frame: Any, file: Path, rate: int | None, *, is_series: bool) -> Path:
        texts = [name for name in frame.columns if str(frame[name].dtype) in ("String", "Categorical", "Enum")]
        of_texts = self.task in _OF_TEXTS or (is_series and self.task in ("", "classify"))
        if texts == frame.columns[-1:] and of_texts:
            rows = frame[texts[0]]
            rows = rows.drop_nulls() if self.task in ("", "text") else rows.fill_null("")
            return self._write_rows("", iter(rows.to_list()), file, None, rate)
        if self.task == "translate" and len(texts) == len(frame.columns) == 2:
            return self._write_rows(("", ""), iter(frame.rows()), file, None, rate)
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
            self.options |= _labelled_columns(frame, texts, self._text_column)
        self._name_columns()
        frames.write_csv(frame, file, self.description, local=self.task != "table", header=self._header)
        self.items = len(frame)
        return file

    def _write_array(self, array: Any, file: Path, labels: Any, rate: int | None) -> Path:
        if array.dtype.kind not in "uifb" or array.ndim == 0:
            raise ValueError(f"{file.name}: expected an array of numbers, got {array.dtype} of shape {array.shape}")
        self.items = len(array)
        if not self.task:
            self.task = "image" if array.ndim > 2 else "table" if array.ndim == 2 else "forecast"
        if self.task == "classify" and array.ndim > 2:
            self.task = "classify-images"
        if self.task in ("image", "classify-images"):
            if labels is None:
                np.save(file.with_suffix(".npy"), array)
                return file.with_suffix(".npy")
            np.savez(file.with_suffix(".npz"), images=array, labels=np.asarray(labels))
            return file.with_suffix(".npz")
        if self.task == "caption":
            with ZipFile(file.with_suffix(".zip"), "w") as archive:
                for number, image in enumerate(array):
                    archive.writestr(f"{number:06}.png", _png(image, file.name))
            return file.with_suffix(".zip")
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
        return _write_csv(file.with_suffix(".csv"), names if self._header else None, rows.tolist())

    def _write_rows(self, first: Any, rows: Iterator[Any], file: Path, labels: Any, rate: int | None) -> Path:
        if isinstance(first, str):
            return self._write_lines(self._counted(_all(str, rows, file.name)), file)
        if isinstance(first, Real):
            return self._write_array(np.array(list(_all(Real, rows, file.name))), file, labels, rate)
        if hasattr(first, "ndim"):
            return self._write_arrays(first, rows, file, labels, rate)
        if isinstance(first, Mapping):
            return self._write_records(first, self._counted(_all(Mapping, rows, file.name)), file)
        if not isinstance(first, Sequence) or isinstance(first, bytes) or not first:
            raise ValueError(f"{file.name}: {_EXPECTED}, got a list of {type(first).__name__}")
        rows = self._counted(_all(Sequence, rows, file.name))
        if not isinstance(first[0], str):
            if isinstance(first[0], Real):
                raise ValueError(f"{file.name}: rows of numbers: pass them as an array, numpy.array(rows)")
            self.task = self.task or "tag"
            return _write_text(file.with_suffix(".tsv"), map(_sentence(file.name), rows))
        if self.task == "tag":
            return _write_text(file.with_suffix(".tsv"), (_words(number, row) for number, row in enumerate(rows, 1)))
        self.task = self.task or "classify"
        if self.task not in ("classify", "translate"):
            raise ValueError(f"{file.name}: a run of the task {self.task} takes no pairs")
        pairs = map(_pair(file.name, one_line=self.task == "translate"), rows)
        if self.task == "translate":
            return _write_text(file.with_suffix(".tsv"), ("\t".join(pair) + "\n" for pair in pairs))
        return _write_csv(file.with_suffix(".csv"), ["text", "label"], pairs)

    def _counted(self, rows: Iterator[Any]) -> Iterator[Any]:
        self.items = 0
        for row in rows:
            self.items += 1
            yield row

    def _write_lines(self, rows: Iterator[str], file: Path) -> Path:
        self.task = self.task or "text"
        if self.task == "tag":  # sentences of words between blanks
            words = (list(filter(None, row.replace("\t", " ").split(" "))) for row in rows)
            return _write_text(file.with_suffix(".tsv"), (_words(number, row) for number, row in enumerate(words, 1)))
        if self.task == "classify":
            # other columns keep a row of an empty text, and tell that the first one is a header
            cells = ([row, number, number] for number, row in enumerate(rows))
            return _write_csv(file.with_suffix(".csv"), ["text", "#", "##"], cells)
        if self.task not in _OF_TEXTS:
            raise ValueError(f"{file.name}: a run of the task {self.task} takes no strings")
        broken = False

        def ended() -> Iterator[str]:
            nonlocal broken
            for number, row in enumerate(rows):
                broken = broken or "\n" in row or "\r" in row
                yield f"{number:06}.png\t{row}\n" if self.task == "caption" else f"{row}\n"

        path = _write_text(file.with_suffix(".txt"), ended())
        if broken and self.task != "text":
            raise ValueError(f"{file.name}: a row of the task {self.task} is one line, but a string has a line break")
        if self.task == "text":
            self.options.setdefault("reading", "stream" if broken else "lines")
        return path

    def _write_records(self, first: Mapping[str, Any], rows: Iterator[Any], file: Path) -> Path:
        self.task = self.task or "table"

        def cells() -> Iterator[list[Any]]:
            for number, row in enumerate(rows, 1):
                if row.keys() != first.keys():
                    raise ValueError(f"{file.name}: row {number}: expected the keys {', '.join(map(str, first))}")
                yield ["" if row[name] is None else row[name] for name in first]

        self._name_columns()
        return _write_csv(file.with_suffix(".csv"), list(first) if self._header else None, cells())

    def _name_columns(self) -> None:
        """Say that the columns are named where numbers may name them."""
        if self.task in ("table", "forecast"):
            self.options["header"] = "yes"

    def _write_arrays(self, first: Any, rows: Iterator[Any], file: Path, labels: Any, rate: int | None) -> Path:
        if first.ndim == 1 and self.task in ("", "sound"):
            self.task = "sound"
            return self._write_sounds(map(_array, rows), file, rate)
        if self.task == "music":
            return self._write_rolls(map(_array, rows), file)
        arrays = list(map(_array, rows))
        if len({array.shape for array in arrays}) > 1:
            raise ValueError(f"{file.name}: expected arrays of one shape, got {arrays[0].shape} and others")
        return self._write_array(np.stack(arrays), file, labels, rate)

    def _write_rolls(self, rolls: Iterable[Any], file: Path) -> Path:
        from chainrule.data import midi_file
        from chainrule.data._midi import KEYS, LOWEST

        file.mkdir()
        for number, roll in enumerate(rolls):
            if np.shape(roll)[1:] != (KEYS,):
                remedy = f"of the 128 notes of MIDI pass roll[:, {LOWEST}:{LOWEST + KEYS}]"
                raise ValueError(f"{file.name}: expected piano rolls (T, {KEYS}), got {np.shape(roll)}: {remedy}")
            (file / f"{number:06}.mid").write_bytes(midi_file(roll, frames_per_quarter=self._rate or 4))
        return file

    def _write_sounds(self, sounds: Iterable[Any], file: Path, rate: int | None) -> Path:
        from chainrule.data import write_wav

        rate = rate or self._rate
        if rate is None:
            raise ValueError("rate: expected the samples a second of the sounds, such as rate=8000")
        self._rate = rate
        file.mkdir()
        for number, sound in enumerate(sounds):
            write_wav(file / f"{number:06}.wav", np.asarray(sound, dtype=np.float32), int(rate))
            self.items = number + 1
        return file


def _labelled_columns(frame: Any, texts: Sequence[str], text_column: str) -> dict[str, str]:
    """Name the columns of texts and labels, so that the first row of the file is known to be a header."""
    from chainrule.data._labelled.labelled_file import LABEL_NAMES, TEXT_NAMES

    def usual(names: Sequence[str]) -> list[str]:
        return [name for name in frame.columns if name.lower() in names]

    named = [text_column] if text_column in frame.columns else usual(TEXT_NAMES)
    named = named or sorted(texts, key=lambda name: -frame[name].n_unique())
    if not named:
        return {}
    rest = [name for name in frame.columns if name != named[0]]
    labels = [name for name in usual(LABEL_NAMES) if name in rest] or (rest if len(rest) == 1 else [])
    return {"text_column": named[0]} | ({"label_column": labels[0]} if labels else {})


def inputs_of(run: "Task[Any]") -> Inputs:
    """Return the `Inputs` for the verbs and methods of a run."""
    column = getattr(run.data, "text_column", None)
    header = getattr(getattr(run, "schema", None), "header", True)
    inputs = Inputs(run.name, rate=getattr(run, "rate", None), text_column=column, header=header)
    inputs.description = frames.load_description(run.path / FRAME)
    run.source_names = inputs.names
    return inputs


def _existing(path: str) -> str:
    if path != STDIN and ("\n" in path or not all(Path(each).exists() for each in paths_of(path))):
        raise FileNotFoundError(
            f"{path[:80]!r}: no such file; texts in memory are passed as a list, or as fit(text=...)"
        )
    return path


def texts_of(data: Any) -> list[str]:
    """Check that in-memory data are strings, and list them."""
    if not isinstance(data, Iterable) or hasattr(data, "columns"):
        remedy = ": pass one of its columns" if hasattr(data, "columns") else ""
        raise ValueError(f"data: expected a path or strings, got {type(data).__name__}{remedy}")
    texts = list(data)
    for number, text in enumerate(texts, 1):
        if not isinstance(text, str):
            raise ValueError(f"data: expected a path or strings, but value {number} is {text!r:.80}")
    return texts


def _is_dataset(data: Any) -> bool:
    """Tell if data are a Hugging Face Dataset."""
    return hasattr(data, "column_names") and hasattr(data, "to_polars") and not frames.is_frame(data)


def _array(data: Any) -> Any:
    """Convert an array or tensor to NumPy; half precision becomes 32 bits."""
    if hasattr(data, "detach"):
        data = data.detach().cpu()
        data = data.float() if data.dtype.is_floating_point and data.dtype.itemsize < 4 else data
    return np.asarray(data)


def _words(number: int, words: Sequence[str]) -> str:
    for word in words:
        if not word or any(blank in word for blank in " \t\r\n"):
            raise ValueError(f"data: sentence {number}: expected words without blanks, got {word!r:.80}")
    return "".join(f"{word}\n" for word in words) + "\n"


def _all(kind: type, rows: Iterator[Any], name: str) -> Iterator[Any]:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, kind) or (kind is Sequence and isinstance(row, str)):
            raise ValueError(f"{name}: row {number}: expected rows of one kind, got {row!r:.80}")
        yield row


def _sentence(name: str) -> Callable[[Iterable[Any]], str]:
    def lines(pairs: Iterable[Any]) -> str:
        written = []
        for pair in pairs:
            if len(pair) != 2 or any(not part or part != part.strip() or "\t" in part or "\n" in part for part in pair):
                raise ValueError(f"{name}: expected sentences of pairs of a word and a tag, got {pair!r:.80}")
            written.append(f"{pair[0]}\t{pair[1]}\n")
        return "".join(written) + "\n"

    return lines


def _pair(name: str, *, one_line: bool) -> Callable[[Sequence[Any]], list[str]]:
    def parts(pair: Sequence[Any]) -> list[str]:
        if len(pair) != 2:
            raise ValueError(f"{name}: expected strings or pairs of strings, got {len(pair)} values: {pair!r:.80}")
        texts = list(map(str, pair))
        if one_line and any("\t" in text or "\n" in text for text in texts):
            raise ValueError(f"{name}: expected a source and a target in one line each, got {pair!r:.80}")
        return texts

    return parts


def _png(image: Any, name: str) -> bytes:
    from chainrule.data import png

    if image.dtype != "uint8" or image.ndim not in (2, 3):
        raise ValueError(f"{name}: expected images (H, W) or (H, W, 3) of uint8, got {image.dtype} {image.shape}")
    return png(image)


def _write_text(file: Path, pieces: Iterable[str]) -> Path:
    with file.open("w", encoding="utf-8", newline="") as opened:
        opened.writelines(pieces)
    return file


def _write_csv(file: Path, names: Sequence[str] | None, rows: Iterable[Sequence[Any]]) -> Path:
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        if names is not None:
            writer.writerow(names)
        writer.writerows(rows)
    return file
