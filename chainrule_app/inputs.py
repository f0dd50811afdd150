"""Data of all kinds as the readers of tasks take them: paths of files, several files in turn, or data in memory."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from numbers import Real
from typing import TYPE_CHECKING, Any

from chainrule.option_error import OptionError
from chainrule.printing import printable
from chainrule_app import frames
from chainrule_app.data_sets import Handed, is_hugging_face, of_hugging_face, of_tuples, with_answers
from chainrule_app.heavy import np
from chainrule_app.items import (
    EXPECTED,
    all_of,
    as_array,
    existing,
    is_clip,
    is_picture,
    items_of,
    labelled_columns,
    pair_of,
    samples_of,
    sentence_of,
)
from chainrule_app.media_inputs import MediaInputs
from chainrule_app.readers.files_in_turn import HeldText
from chainrule_app.readers.gather import gathered
from chainrule_app.readers.origin import STDIN, DataSource, HeldRows, Origin
from chainrule_app.readers.record_keys import (
    Keys,
    conversation,
    found_keys,
    has_texts,
    is_chat,
    is_message,
    keys_of,
    pairs_in,
    sentences_in,
    task_of,
    text_of,
)
from chainrule_app.readers.records import first_record
from chainrule_app.readers.sources import KINDS, holds_records, paths_of
from chainrule_app.readers.tagged.spans import TaggedWords, words_between_blanks, words_of_text
from chainrule_app.tasks.run_directory import FRAME

if TYPE_CHECKING:
    from chainrule_app.tasks.task import Task

_OF_FILES = [task for task, kind in KINDS.items() if kind == "files"]  # tasks that read a file for each item
_OF_TEXTS = ("text", "tag", "translate", "caption")  # tasks that read no table


class Inputs(MediaInputs):
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
        super().__init__(task, rate)
        self._keys, self._keep_paths, self._answers = keys or Keys(), keep_paths, answers
        self.options: dict[str, Any] = {}
        self._apart = False  # whether texts to score are kept apart
        self._found, self.tells = "", False  # the keys that records told, and whether to say so at the end

    def __enter__(self) -> "Inputs":
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None and self._found and self.tells:
            print(printable(self._found), file=sys.stderr)

    def options_of(self, kind: type) -> dict[str, Any]:
        """Return the options that describe the data, as far as an options dataclass has them."""
        known = {field.name for field in fields(kind)}
        return {name: value for name, value in self.options.items() if name in known}

    def source(
        self, data: Any, name: str = "data", *, labels: Any = None, y: Any = None, rate: int | None = None
    ) -> "str | DataSource":
        """Return what a reader takes: the path of one file, or a `DataSource`.

        Args:
            data: a path, or data in memory.
            name: of the argument, for errors.
            labels: of images in an array.
            y: answers beside data in memory, see `with_answers`.
            rate: samples a second of sounds.
        """
        is_file = isinstance(data, str | os.PathLike)
        if labels is not None and is_file:
            raise OptionError("labels", "expected images in an array with them, got a path", "files have their own")
        self._rate = rate or self._rate
        origin = Origin(name, "index")
        if y is not None:
            return self._handed(with_answers(data, y, self.task, name), origin)
        made = self._source(data, origin, labels)
        if labels is not None and self.task not in ("image", "classify-images"):
            raise OptionError("labels", "expected images in an array with them; of texts pass list(zip(texts, labels))")
        return made

    def _source(self, data: Any, origin: Origin, labels: Any) -> "str | DataSource":
        if isinstance(data, DataSource):
            return data
        if isinstance(data, str | os.PathLike):
            streams = self.task == "text" or origin.name == "file"
            return self.opened(existing(os.fspath(data), origin.name), origin.name, streams=streams)
        if is_hugging_face(data):
            return self._handed(of_hugging_face(data, self.task), origin, labels)
        if frames.is_frame(data):
            return self._frame(frames.as_frame(data), origin, is_series=frames.is_series(data))
        if hasattr(data, "ndim") and hasattr(data, "dtype"):
            data = as_array(data)
            if data.dtype.kind not in "OUT" or not data.ndim:
                return self._array(data, origin, labels)
            data = data.tolist()
        items = items_of(data, origin.name)
        first = next(items)
        return self._rows(first, chain((first,), items), origin, labels)

    def _handed(self, handed: Handed, origin: Origin, labels: Any = None) -> "str | DataSource":
        self.task = handed.task or self.task
        if handed.target is not None:
            self.options.setdefault("target", handed.target)
        return self._source(handed.data, origin, handed.labels if labels is None else labels)

    def texts(self, data: Any) -> list[str]:
        """List the texts of data in memory, for a method that answers for each."""
        self._apart = True
        rows = self._source(data, Origin("data", "index"), None)
        assert isinstance(rows, HeldRows)
        return [text for (text,) in rows.rows]

    def opened(self, source: str, name: str, *, streams: bool = False) -> "str | DataSource":
        """Return what a reader takes for files; see `chainrule_app.readers.gather.gathered`."""
        kind = KINDS.get(self.task)
        if kind is None or self._keep_paths:
            return source
        first = paths_of(source)[0]
        alone = name.endswith("target")  # of two files, which may have other keys
        if first != STDIN and kind in ("pairs", "tags") and not alone and holds_records(first):
            self._find_keys((f"{first} record 1", first_record(first)), kind)
        return gathered(source, kind, Keys() if alone else self._keys, streams=streams)

    def _find_keys(self, located: tuple[str, Mapping[str, Any]], kind: str) -> None:
        """Find the keys of pairs and tags in a first record; a run keeps them as options."""
        where, record = located
        keys, self._keys = self._keys, found_keys(record, kind, self._keys, where)
        self.options |= self._keys.options(kind)
        if self._keys != keys:
            self._found = f"{where.removesuffix(' record 1').removesuffix(' index 0')}: {self._keys}"

    def text(self, text: str) -> "DataSource":
        """Return a text in memory as a source."""
        self.task = self.task or "text"
        return HeldText(Origin("text", "index"), [text])

    def item(self, data: Any, name: str) -> "str | DataSource":
        """Return one image (H, W) or (H, W, 3), one sound or one piano roll as a source."""
        if isinstance(data, str | os.PathLike) or self.task not in _OF_FILES:
            return self.source(data, name)
        array = as_array(data)
        if array.dtype.kind not in "uifb" or not array.ndim:
            raise ValueError(f"{name}: expected a path or an array of numbers, got {type(data).__name__}: {data!r:.40}")
        if self.task in ("sound", "music"):
            return self.source([array], name)
        return self._images([data if is_picture(data) else array], Origin(name, "index"), None)

    def sources(self, data: Any) -> "list[str | DataSource]":
        """List the sources of a prediction: one per image for captions, else one."""
        if self.task != "caption" or isinstance(data, str | os.PathLike):
            return [self.source(data)]
        if hasattr(data, "columns"):
            raise OptionError("data", "a frame holds no images", "pass a list of arrays or paths")
        data = of_hugging_face(data, self.task).data if is_hugging_face(data) else data
        images = [self.item(image, f"data[{number}]") for number, image in enumerate(items_of(data))]
        self.items = len(images)
        return images

    def _frame(self, native: Any, origin: Origin, *, is_series: bool) -> DataSource:
        from chainrule_app.typed_columns import frame_table

        first = frames.first_record(native)
        nested = task_of(first)
        self.task = self.task or nested
        texts_named = self.task == "text" and (self._keys.text is not None or has_texts(first))
        if not is_series and (texts_named or (self.task in ("translate", "tag") and (nested or len(first) > 1))):
            return self._keyed(frames.records_of(native), origin)
        table = frame_table(native, origin, self.description)
        texts = [name for name in table.names if name in table.texts]
        of_texts = self.task in _OF_TEXTS or (is_series and self.task in ("", "classify"))
        if texts == table.names[-1:] and of_texts:
            cells = table.columns[-1].cells(slice(None), str(origin)).texts()
            if self._apart and None in cells:
                raise ValueError(f"{origin.at(cells.index(None))}: expected a text, got a missing value")
            rows = [cell or "" for cell in cells if cell is not None or self.task not in ("", "text")]
            return self._strings(iter(rows), origin)
        if self.task in (*_OF_TEXTS, *_OF_FILES):
            raise ValueError(f"{origin}: a frame holds no data of the task {self.task}: pass one of its columns")
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

    def _array(self, array: Any, origin: Origin, labels: Any) -> DataSource:
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

    def _rows(self, first: Any, rows: Iterator[Any], origin: Origin, labels: Any) -> "str | DataSource":
        if isinstance(first, str):
            return self._strings(all_of(str, rows, origin), origin)
        if isinstance(first, Real):
            return self._array(np.array(list(all_of(Real, rows, origin))), origin, labels)
        if hasattr(first, "ndim"):
            return self._arrays(first, rows, origin, labels)
        if is_picture(first):
            return self._pictures(list(rows), origin, labels)
        if is_clip(first) and self.task in ("", "sound"):
            self._rate = first["sampling_rate"]
            return self._sounds(samples_of(rows, first["sampling_rate"], origin), origin)
        if is_message(first) and self.task in ("", "text"):
            return self._strings(iter([conversation(list(rows))]), origin)
        if isinstance(first, list | tuple) and [*map(type, first)] == [str, dict]:
            records = ({"text": text, **spans} for text, spans in rows)  # as spaCy's training data were
            return self._mappings({"text": first[0], **first[1]}, records, origin)
        if is_chat(first):
            return self._strings(map(conversation, rows), origin)
        if isinstance(first, Mapping):
            return self._mappings(first, all_of(Mapping, rows, origin), origin)
        if isinstance(first, tuple) and 0 < len(first) < 3 and (hasattr(first[0], "ndim") or is_picture(first[0])):
            return self._handed(of_tuples(first, rows, origin.name, self.task), origin, labels)
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

    def _strings(self, rows: Iterator[str], origin: Origin) -> DataSource:
        self.task = self.task or "text"
        if self.task == "text":
            return self._texts(rows, origin)
        if self.task == "tag":
            split = words_of_text if self._keys.spans else words_between_blanks
            return self._sentences((split(row) for row in rows), origin)
        if self.task == "classify" and self._answers:
            raise ValueError(f"{origin}: expected pairs of a text and its label, got strings alone")
        if self.task not in ("classify", *_OF_TEXTS):
            raise ValueError(f"{origin}: a run of the task {self.task} takes no strings")
        texts = [(row,) for row in rows]
        if self.task != "classify" and any("\n" in text for (text,) in texts):
            raise ValueError(f"{origin}: a row of the task {self.task} is one line, but a string has a line break")
        self.items = len(texts)
        return HeldRows(origin, texts)

    def _texts(self, rows: Iterator[str], origin: Origin) -> DataSource:
        if self._apart:
            return HeldRows(origin, [(row,) for row in rows])
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

    def _sentences(self, sentences: Iterable[TaggedWords], origin: Origin) -> DataSource:
        from chainrule_app.readers.tagged.conll_file import HeldSentences

        held = HeldSentences(origin, enumerate(sentences))
        self.items = len(held.sentences)
        return held

    def _mappings(self, first: Mapping[str, Any], records: Iterator[Any], origin: Origin) -> DataSource:
        self.task = self.task or task_of(first) or "table"
        if self.task in _OF_FILES:
            remedy = f"as [row[{next(iter(first), 'image')!r}] for row in data]"
            raise ValueError(f"{origin}: dictionaries hold no data of the task {self.task}: pass a list {remedy}")
        if self.task in ("text", "translate", "tag"):
            return self._keyed(records, origin)
        from chainrule_app.typed_columns import records_table

        rows = list(records)
        self.items = len(rows)
        table = records_table(rows, origin, self.description)
        if self.task == "classify":
            self.options |= labelled_columns(table, sorted(table.texts), self._keys.text or "")
            self._describe_labels(table)
        return table

    def _keyed(self, records: Iterable[Any], origin: Origin) -> DataSource:
        """Return the texts, pairs or tagged sentences of dictionaries, by the names of their keys."""
        if self.task == "text":
            column = self._keys.text
            return self._strings((text_of(own, column, origin.at(index)) for index, own in enumerate(records)), origin)
        rows = iter(records)
        first = next(rows)
        self._find_keys((origin.at(0), first), KINDS[self.task])
        numbered = enumerate(chain((first,), rows))
        if self.task == "translate":
            pairs = list(pairs_in(numbered, self._keys, origin))
            self.items = len(pairs)
            return HeldRows(origin, pairs)
        return self._sentences((own for _, own in sentences_in(numbered, self._keys, origin)), origin)

    def _arrays(self, first: Any, rows: Iterator[Any], origin: Origin, labels: Any) -> DataSource:
        if first.ndim == 1 and self.task in ("", "sound"):
            return self._sounds(map(as_array, rows), origin)
        if self.task == "music":
            return self._rolls(map(as_array, rows), origin)
        arrays = list(map(as_array, rows))
        if len({array.shape for array in arrays}) > 1:
            raise ValueError(f"{origin}: expected arrays of one shape, got {arrays[0].shape} and others")
        return self._array(np.stack(arrays), origin, labels)


def inputs_of(run: "Task[Any]", *, answers: bool = True) -> Inputs:
    """Return the `Inputs` for the verbs and methods of a run."""
    keys = replace(keys_of(run.data), answers=answers)
    inputs = Inputs(run.name, rate=getattr(run, "rate", None), keys=keys, answers=answers)
    if (run.path / FRAME).is_file():
        inputs.description = frames.load_description(run.path / FRAME)
    inputs.tells = True  # a training tells in its own lines
    return inputs
