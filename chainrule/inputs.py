"""In-memory data as files that the readers of tasks take: data in memory and on disk are read by the same code.

Frames become CSV, texts lines, arrays .npy or wav files. The files live as long as the `Inputs` that wrote them.
"""

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from chainrule import frames


class Inputs:
    """Writes in-memory data into a temporary directory.

    Args:
        task: the name of the task that will read the files; recognised from the first data if empty.

    Attributes:
        task: that name.
        description: of the first frame or array, see `chainrule.frames.describe`; None for other data.
        options: options of the task that follow from the data.
    """

    def __init__(self, task: str = ""):
        self.task = task
        self.description: dict[str, Any] | None = None
        self.options: dict[str, Any] = {}
        self._folder = TemporaryDirectory(prefix="chainrule-")

    def __enter__(self) -> "Inputs":
        return self

    def __exit__(self, *error: object) -> None:
        self._folder.cleanup()

    def path(self, data: Any, name: str = "data", *, labels: Any = None, rate: int | None = None) -> str:
        """The path of data: as given, or of the file that they are written to.

        Args:
            data: a path; a frame or series; an array or tensor; strings, pairs or sentences of (word, tag) pairs.
            name: of the file, without its suffix.
            labels: of images, one each.
            rate: samples a second of sounds.

        Raises:
            ValueError: the task cannot read such data, or it is not clear which task is meant.
        """
        if isinstance(data, str | os.PathLike):
            return os.fspath(data)
        file = Path(self._folder.name) / name
        if frames.is_frame(data) or _is_dataset(data):
            if not self.task and (getattr(data, "ndim", 2) == 1 or not hasattr(data, "columns")):
                self.task = "forecast"  # of a series
            return str(self._write_frame(frames.as_frame(data.to_polars() if _is_dataset(data) else data), file))
        if hasattr(data, "detach"):  # a tensor
            data = data.detach().cpu().numpy()
        if hasattr(data, "ndim") and hasattr(data, "dtype"):
            return str(self._write_array(data, file, labels))
        if not isinstance(data, Iterable):
            raise ValueError(
                f"data: expected a path, a frame, an array or a list of strings, got {type(data).__name__}"
            )
        rows = iter(data)
        first = next(rows, None)
        if first is None:
            raise ValueError("data: expected at least one row, got none")
        return str(self._write_rows(first, chain((first,), rows), file, rate))

    def text(self, text: str) -> str:
        """The path of a file that holds one text."""
        self.task = self.task or "text"
        file = Path(self._folder.name) / "text.txt"
        file.write_text(text, encoding="utf-8", newline="")
        return str(file)

    def _write_frame(self, frame: Any, file: Path) -> Path:
        self.task = self.task or "table"
        file = file.with_suffix(".csv")
        if self.description is None:
            self.description = frames.describe(frame)
            if self.task == "table" and (texts := frames.text_columns(self.description, frame)):
                self.options["types"] = ",".join(f"{name}=categorical" for name in texts)
        frames.write_csv(frame, file)
        return file

    def _write_array(self, array: Any, file: Path, labels: Any) -> Path:
        import numpy as np

        if not self.task:
            self.task = "image" if array.ndim > 2 else "table" if array.ndim == 2 else "forecast"
        if self.task in ("image", "classify-images"):
            if labels is None:
                np.save(file.with_suffix(".npy"), array)
                return file.with_suffix(".npy")
            np.savez(file.with_suffix(".npz"), images=array, labels=np.asarray(labels))
            return file.with_suffix(".npz")
        if self.task == "sound":
            return self._write_sounds(np.atleast_2d(array), file, None)
        if array.ndim > 2 or array.dtype.kind not in "uifb":
            raise ValueError(f"data: a {self.task} expects numbers (rows, columns), got {array.dtype} {array.shape}")
        rows = array[:, None] if array.ndim == 1 else array.astype(int) if array.dtype.kind == "b" else array
        self.description = self.description or {"library": "numpy", "dtype": str(array.dtype), "columns": {}}
        names = ["value"] if array.ndim == 1 else [f"column{number}" for number in range(1, rows.shape[1] + 1)]
        return _write_csv(file.with_suffix(".csv"), names, rows.tolist())

    def _write_rows(self, first: Any, rows: Iterator[Any], file: Path, rate: int | None) -> Path:
        if isinstance(first, str):
            return self._write_lines(rows, file)
        if hasattr(first, "ndim") or hasattr(first, "detach"):
            if first.ndim == 1:
                self.task = self.task or "sound"
                return self._write_sounds(rows, file, rate)
            import numpy as np

            return self._write_array(np.stack([np.asarray(row) for row in rows]), file, None)
        if isinstance(first, dict):
            return self._write_records(first, rows, file)
        if isinstance(first, Sequence) and first and not isinstance(first[0], str):
            self.task = self.task or "tag"
            return _write_text(file.with_suffix(".tsv"), (_sentence(number, row) for number, row in enumerate(rows, 1)))
        if isinstance(first, Sequence) and (self.task == "tag" or len(first) != 2):
            if self.task != "tag":
                raise ValueError(f"data: expected strings or pairs of strings, got rows of {len(first)} values")
            return _write_text(file.with_suffix(".tsv"), (_words(number, row) for number, row in enumerate(rows, 1)))
        self.task = self.task or "classify"
        if self.task == "translate":
            return _write_text(file.with_suffix(".tsv"), (_pair(number, pair) for number, pair in enumerate(rows, 1)))
        return _write_csv(file.with_suffix(".csv"), ["text", "label"], rows)

    def _write_lines(self, rows: Iterator[str], file: Path) -> Path:
        self.task = self.task or "text"
        if self.task == "tag":  # sentences of words between blanks
            words = (list(filter(None, row.replace("\t", " ").split(" "))) for row in rows)
            return _write_text(file.with_suffix(".tsv"), (_words(number, row) for number, row in enumerate(words, 1)))
        if self.task == "classify":
            return _write_csv(file.with_suffix(".csv"), ["text"], ([row] for row in rows))
        lines = True

        def ended() -> Iterator[str]:
            nonlocal lines
            for row in rows:
                lines = lines and "\n" not in row and "\r" not in row
                yield f"{row}\n"

        path = _write_text(file.with_suffix(".txt"), ended())
        if not lines and self.task != "text":
            raise ValueError(f"data: a row of the task {self.task} is one line, but a string has a line break in it")
        self.options.setdefault("reading", "lines" if lines else "stream")
        return path

    def _write_records(self, first: dict[str, Any], rows: Iterator[Any], file: Path) -> Path:
        self.task = self.task or "table"
        cells = (["" if row[name] is None else row[name] for name in first] for row in rows)
        return _write_csv(file.with_suffix(".csv"), list(first), cells)

    def _write_sounds(self, sounds: Iterable[Any], file: Path, rate: int | None) -> Path:
        import numpy as np

        from chainrule.data.sounds import write_wav

        rate = rate or self.options.get("rate")
        if rate is None:
            raise ValueError("rate: expected the samples a second of the sounds, such as rate=8000")
        file.mkdir()
        for number, sound in enumerate(sounds):
            write_wav(file / f"{number:06}.wav", np.asarray(sound, dtype=np.float32), int(rate))
        return file


def _is_dataset(data: Any) -> bool:
    """Whether data are a Dataset of Hugging Face."""
    return hasattr(data, "column_names") and hasattr(data, "to_polars") and not frames.is_frame(data)


def _words(number: int, words: Sequence[str]) -> str:
    for word in words:
        if not word or any(blank in word for blank in " \t\r\n"):
            raise ValueError(f"data: sentence {number}: expected words without blanks, got {word!r:.80}")
    return "".join(f"{word}\n" for word in words) + "\n"


def _sentence(number: int, pairs: Iterable[Any]) -> str:
    lines = []
    for pair in pairs:
        if len(pair) != 2 or any(not part or part != part.strip() or "\t" in part or "\n" in part for part in pair):
            raise ValueError(f"data: sentence {number}: expected pairs of a word and a tag, got {pair!r:.80}")
        lines.append(f"{pair[0]}\t{pair[1]}\n")
    return "".join(lines) + "\n"


def _pair(number: int, pair: Any) -> str:
    if any("\t" in part or "\n" in part for part in pair):
        raise ValueError(f"data: pair {number}: expected a source and a target in one line each, got {pair!r:.80}")
    return f"{pair[0]}\t{pair[1]}\n"


def _write_text(file: Path, pieces: Iterable[str]) -> Path:
    with file.open("w", encoding="utf-8", newline="") as opened:
        opened.writelines(pieces)
    return file


def _write_csv(file: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
    return file
