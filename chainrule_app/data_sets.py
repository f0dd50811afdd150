"""Data sets of Hugging Face and PyTorch, their splits, and answers beside data, as what `Inputs` reads.

Nothing here imports those libraries: a data set is recognised by what it has.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from chainrule.option_error import OptionError
from chainrule_app import frames
from chainrule_app.heavy import np
from chainrule_app.items import as_array, is_picture, items_of
from chainrule_app.readers.record_keys import OTHERS, has_texts, task_of
from chainrule_app.readers.sources import KINDS

_SPLITS = {"train": ("train", "training"), "validation": ("validation", "valid", "val", "dev"), "test": ("test",)}
_BLOCK = 4096  # rows of a data set that become a frame together


@dataclass(frozen=True)
class Handed:
    """What a data set holds, as `Inputs` reads it."""

    data: Any  # a frame, an array, or an iterable of items
    labels: Any = None  # one for each image
    task: str = ""  # that the data tell
    target: str | None = None  # the column that is predicted from the others


def splits_of(data: Any) -> dict[str, Any] | None:
    """Return the splits of a DatasetDict, or of a dictionary of data sets like it, by their part; None of other data.

    >>> splits_of({"train": ["a"], "dev": ["b"]}), splits_of({"age": [1, 2]})
    ({'train': ['a'], 'validation': ['b']}, None)
    """
    if not isinstance(data, Mapping) or not any(name in data for names in _SPLITS.values() for name in names):
        return None
    found = {part: next((data[name] for name in names if name in data), None) for part, names in _SPLITS.items()}
    return {part: split for part, split in found.items() if split is not None}


def split_for(data: Any, part: str) -> Any:
    """Return the split of a data set that a method reads: the test set to evaluate, or the only one.

    Raises:
        OptionError: there are several, and none of them is the part.
    """
    splits = splits_of(data)
    if splits is None:
        return data
    if part not in splits and len(data) > 1:
        names = list(data)
        raise OptionError("data", f"expected one data set, got {len(names)} splits", f"pass data[{names[-1]!r}]")
    return splits.get(part, next(iter(data.values())))


def is_hugging_face(data: Any) -> bool:
    """Return whether data are a Dataset or IterableDataset of Hugging Face."""
    return hasattr(data, "column_names") and hasattr(data, "features") and not frames.is_frame(data)


def of_hugging_face(data: Any, task: str) -> Handed:
    """Return the rows of a Dataset as a frame, or as images or sounds, and those of an IterableDataset one by one.

    Numbers of classes become their names.
    """
    features = data.features or {}
    names = {name: own for name, feature in features.items() if (own := _class_names(feature)) is not None}
    media = next((name for name, feature in features.items() if type(feature).__name__ in ("Image", "Audio")), None)
    if media is not None and (not task or KINDS.get(task) == "files" or task == "classify"):
        label = next((name for name in names if not _is_list(features[name])), None)
        return _media(data, media, label, names)
    if hasattr(data, "__len__"):
        frame = _named(data.to_polars(), features, names)
        first = frames.first_record(frame)
        if task in ("", "classify") and (columns := _text_and_class(first, names)):
            return Handed(frame.select(columns), task="classify")
        return Handed(frame, task=task or _task_of_set(first, names))
    decode = {name: _decoder(own) for name, own in names.items()}
    rows = ({name: decode.get(name, _same)(value) for name, value in row.items()} for row in data)
    head = list(islice(rows, 1))
    if not head:
        raise ValueError("data: expected at least one row, got none")
    first = head[0]
    every = chain(head, rows)
    if task in ("", "classify") and (columns := _text_and_class(first, names)):
        return Handed(_frame_of_rows({name: row[name] for name in columns} for row in every), task="classify")
    told = task or _task_of_set(first, names)
    if KINDS.get(told) in ("rows", "labelled", None):
        return Handed(_frame_of_rows(every), task=told)
    return Handed(every, task=told)


def _task_of_set(record: Mapping[str, Any], classes: Iterable[str]) -> str:
    """Return the task that the first row of a data set tells."""
    labels = [name for name in classes if not isinstance(record.get(name), list)]
    return task_of(record) or ("text" if has_texts(record) and not labels else "")


def _text_and_class(record: Mapping[str, Any], classes: Iterable[str]) -> list[str]:
    """Return the columns of a text and its class, if the first row of a data set has them and no other but an index."""
    labels = [name for name in classes if not isinstance(record.get(name), list)]
    others = [name for name in record if name not in labels and name.lower() not in OTHERS]
    alone = len(labels) == 1 and len(others) == 1 and isinstance(record[others[0]], str)
    return [*others, *labels] if alone else []


def _class_names(feature: Any) -> Sequence[str] | None:
    """Return the names of a ClassLabel, or of a list of them."""
    inner = getattr(feature, "feature", None) or (feature[0] if isinstance(feature, list) and feature else feature)
    names = getattr(inner, "names", None)
    return names if isinstance(names, list | tuple) else None


def _is_list(feature: Any) -> bool:
    return isinstance(feature, list) or hasattr(feature, "feature")


def _named(frame: Any, features: Mapping[str, Any], names: Mapping[str, Sequence[str]]) -> Any:
    """Return a frame of polars in which numbers of classes are their names; a number without a name is missing."""
    import polars

    def named(values: Any, own: Sequence[str]) -> Any:
        return values.replace_strict(dict(enumerate(own)), default=None, return_dtype=polars.String)

    return frame.with_columns(
        polars.col(name).list.eval(named(polars.element(), own)) if _is_list(features[name])
        else named(polars.col(name), own) for name, own in names.items()
    )  # fmt: skip


def _decoder(names: Sequence[str]) -> Callable[[Any], Any]:
    def decode(value: Any) -> Any:
        if isinstance(value, list):
            return list(map(decode, value))
        return names[value] if isinstance(value, int) and 0 <= value < len(names) else None

    return decode


def _same(value: Any) -> Any:
    return value


def _frame_of_rows(rows: Iterator[Mapping[str, Any]]) -> Any:
    """Return rows, read once, as a frame of polars."""
    import polars

    from chainrule_app.blocks import in_blocks

    return polars.concat((polars.from_dicts(block) for block in in_blocks(rows, _BLOCK)), how="diagonal_relaxed")


def _media(data: Any, media: str, label: str | None, names: Mapping[str, Sequence[str]]) -> Handed:
    """Return the images or sounds of a data set, and their labels."""
    if label is None:
        return Handed([row[media] for row in data.select_columns([media])])
    decode, items, labels = _decoder(names[label]), [], []
    for row in data.select_columns([media, label]):
        items.append(row[media])
        labels.append(decode(row[label]))
    return Handed(items, labels=None if None in labels else labels)


def of_tuples(first: Any, rows: Iterator[Any], origin: str, task: str) -> Handed:
    """Return the items of a data set of PyTorch, (x,) or (x, y) of arrays, tensors or images, as an array and answers.

    Images as torchvision's ToTensor makes them, from 0 to 1, become images of 8 bits.
    """
    every = list(rows)
    if any(not isinstance(row, tuple) or len(row) != len(first) for row in every):
        raise ValueError(f"{origin}: expected rows of one kind, got tuples of {len(first)} and others")
    xs: Any = [row[0] for row in every]
    ys = [_plain(row[1]) for row in every] if len(first) > 1 else None
    if not is_picture(xs[0]):
        arrays = list(map(as_array, xs))
        if len({array.shape for array in arrays}) > 1:
            raise ValueError(f"{origin}: expected arrays of one shape, got {arrays[0].shape} and others")
        xs = np.stack(arrays)
        if xs.ndim > 2:
            xs = _of_8_bits(xs, origin)
    return Handed(xs) if ys is None else with_answers(xs, ys, task, origin)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def _of_8_bits(images: Any, origin: str) -> Any:
    if images.dtype.kind != "f":
        return images
    if not (images >= 0).all() or not (images <= 1).all():
        raise ValueError(
            f"{origin}: expected images from 0 to 1, got {images.min():g} to {images.max():g}: leave out the transform "
            "that normalises them"
        )
    return np.round(images * 255).astype(np.uint8)


def with_answers(data: Any, answers: Any, task: str, origin: str = "data") -> Handed:
    """Put answers beside the data that they belong to, as `fit(X, y)` takes them.

    Labels or targets beside texts and tags beside words become pairs, a target beside a frame or rows becomes one more
    column, and the labels of images stay apart.
    """
    if isinstance(data, str) or hasattr(data, "parameters"):
        raise OptionError("y", f"expected data in memory as the first argument, got {type(data).__name__}")
    name = str(getattr(answers, "name", None) or "target")
    if frames.is_frame(answers) and not frames.is_series(answers):
        name, answers = _only_column(answers)
    values = answers.tolist() if hasattr(answers, "tolist") else list(answers)
    if is_hugging_face(data):
        data = of_hugging_face(data, task).data
    if frames.is_frame(data) and not frames.is_series(data):
        frame = frames.as_frame(data)
        return Handed(_with_column(frame, name, answers, values, origin), task=task or "table", target=name)
    if hasattr(data, "ndim") and hasattr(data, "dtype") and not frames.is_frame(data):
        array = as_array(data)
        data = array.tolist() if array.dtype.kind in "OUT" else array
    if isinstance(data, np.ndarray):
        _check_count(len(data), values)
        if data.ndim == 2:
            import polars

            columns = {f"column{number}": np.ascontiguousarray(column) for number, column in enumerate(data.T, 1)}
            return Handed(polars.DataFrame({**columns, name: values}), task=task or "table", target=name)
        return Handed(data, labels=values, task=task or "classify-images")
    rows = list(items_of(data))
    _check_count(len(rows), values)
    if is_picture(rows[0]) or hasattr(rows[0], "ndim"):
        return Handed(rows, labels=values, task=task or "classify-images")
    if isinstance(rows[0], str):
        return Handed(list(zip(rows, values, strict=True)), task=task or "classify")
    if isinstance(rows[0], Mapping):
        records = [{**row, name: value} for row, value in zip(rows, values, strict=True)]
        return Handed(records, task=task or "table", target=name)
    sentences = []
    for index, (words, tags) in enumerate(zip(rows, values, strict=True)):
        if isinstance(tags, str) or not isinstance(tags, Iterable) or len(tags := list(tags)) != len(words):
            raise ValueError(f"y index {index}: expected a tag for each of {len(words)} words, got {tags!r:.60}")
        sentences.append(list(zip(words, map(str, tags), strict=True)))
    return Handed(sentences, task=task or "tag")


def _only_column(frame: Any) -> tuple[str, Any]:
    import narwhals as nw

    own = nw.from_native(frame, eager_only=True)
    if len(own.columns) != 1:
        raise OptionError("y", f"expected one column, got {len(own.columns)}", "name it, such as y=frame['label']")
    return str(own.columns[0]), own[own.columns[0]].to_native()


def _check_count(count: int, values: Sequence[Any]) -> None:
    if len(values) != count:
        raise OptionError("y", f"expected an answer for each of {count} rows, got {len(values)}")


def _with_column(frame: Any, name: str, answers: Any, values: Sequence[Any], origin: str) -> Any:
    """Return a frame of pandas, polars or Arrow with one more column, of the type of the answers."""
    _check_count(len(frame), values)
    names = list(map(str, frame.column_names if hasattr(frame, "column_names") else frame.columns))
    if name in names:
        raise OptionError("y", f"{origin} has a column {name!r} already", "drop it there, or rename one")
    if hasattr(frame, "with_columns"):
        import polars

        return frame.with_columns(polars.Series(name, answers if hasattr(answers, "dtype") else values))
    if hasattr(frame, "append_column"):
        return frame.append_column(name, [values])
    return frame.assign(**{name: getattr(answers, "array", values)})
