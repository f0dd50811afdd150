"""Data of requests as a run takes them, none of them a path, and what its methods return as JSON."""

import base64
import binascii
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from chainrule._app import frames
from chainrule._app.results import Report, Result
from chainrule._app.tasks.display import plain_value

_IMAGES = ("image", "classify-images", "caption")  # tasks whose items are images
_MOST_PIXELS = 1 << 22


def data_of(task: str, value: Any, name: str) -> list[Any]:
    """Convert a list of a request to data of a task.

    Args:
        task: the name of the task.
        value: texts, sentences, records, numbers, images or sounds.
        name: of the argument.

    Raises:
        ValueError: it is no list, or has items of another kind.
    """
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name}: expected a list of at least one item, got {value!r:.80}")
    if task in _IMAGES:
        return [image_of(item, name) for item in value]
    if task == "sound":
        return [_numbers(item, name, 1) for item in value]
    return value


def item_of(task: str, value: Any, name: str) -> Any:
    """Return the content of a file argument, sent in a request: an image, a sound, or a list of rows."""
    if task in ("image", "classify-images"):
        return image_of(value, name)
    if task == "sound":
        return _numbers(value, name, 1)
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name}: expected a list of rows, not the path of a file, got {value!r:.80}")
    return value


def bytes_of(value: str, name: str) -> bytes:
    """Decode base64."""
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{name}: expected bytes in base64") from None


def image_of(value: Any, name: str) -> Any:
    """Return an image (H, W) or (H, W, 3) of 8 bits: lists of numbers, or a PNG or JPEG file in base64."""
    import numpy as np

    if not isinstance(value, str):
        array = _numbers(value, name, 2, 3)
        if array.size and not (array.min() >= 0 and array.max() <= 255 and (array == np.floor(array)).all()):
            raise ValueError(f"{name}: expected whole numbers from 0 to 255 in images")
        return array.astype(np.uint8)
    from PIL import Image

    try:
        with Image.open(io.BytesIO(bytes_of(value.rpartition("base64,")[2], name)), formats=("PNG", "JPEG")) as image:
            if image.width * image.height > _MOST_PIXELS:
                raise ValueError(f"{name}: expected images of at most {_MOST_PIXELS:,} pixels")
            return np.asarray(image.convert("L" if image.mode in ("1", "L", "I;16") else "RGB"))
    except (OSError, SyntaxError, Image.DecompressionBombError):
        raise ValueError(f"{name}: expected images as lists of numbers, or PNG or JPEG files in base64") from None


def _numbers(value: Any, name: str, *dimensions: int) -> Any:
    """Nested lists of numbers as an array."""
    import numpy as np

    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        array = np.empty(())
    if isinstance(value, str) or array.ndim not in dimensions or not np.isfinite(array).all():
        raise ValueError(f"{name}: expected lists of numbers, each item of one shape, got {value!r:.80}")
    return array.astype(np.float32) if dimensions == (1,) else array


def answered(value: Any) -> Any:
    """Return the result of a method of a run as JSON; NaN and infinite numbers become null."""
    match value:
        case Result():
            return _finite(_table(value))
        case Report():
            return _finite({"findings": value.findings, "lines": list(value.lines)})
        case bytes():
            return {"data": base64.b64encode(value).decode()}
        case list():
            return {"rows": [_finite(plain_value(item, item)) for item in value]}
    if hasattr(value, "tolist"):
        return {"rows": _finite(value.tolist())}
    if frames.is_frame(value):
        frame = frames.as_frame(value)
        return {"rows": [_finite(dict(zip(frame.columns, row, strict=True))) for row in frame.rows()]}
    return _finite(asdict(value) if is_dataclass(value) and not isinstance(value, type) else {"text": str(value)})


def _table(result: Result) -> dict[str, Any]:
    """Convert a result: a record for each row, figures of all rows, facts, and notes."""

    def plain(facts: Mapping[str, Any]) -> dict[str, Any]:
        return {name: plain_value(value, value) for name, value in facts.items()}

    rows = [
        {column.name: plain_value(column.value(cell), cell) for column, cell in zip(result.columns, row, strict=True)}
        for row in result.rows()
    ]
    return {"rows": rows, "summary": plain(result.summary), "about": plain(result.about), "notes": [*result.notes()]}


def _finite(value: Any) -> Any:
    """Convert a value for JSON, which has no NaN, no infinity and no dates."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, str | int):
        return value
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    return list(map(_finite, value)) if isinstance(value, Iterable) else str(value)
