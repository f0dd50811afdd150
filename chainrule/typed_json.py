"""Check what JSON gave against annotations: every key known, every value of its type."""

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def field_types(record: type) -> dict[str, Any]:
    """Return the annotations of the fields of a dataclass, by name: one object for all callers, not to be changed."""
    found: Any = record  # mypy takes no type[Self] for hashable
    return _field_types(found)


@cache
def _field_types(record: Any) -> dict[str, Any]:
    hints = get_type_hints(record)
    return {field.name: hints[field.name] for field in fields(record)}


def read_fields(types: Mapping[str, Any], content: Any, where: str = "") -> dict[str, Any]:
    """Check that an object has exactly the fields of `types`, each of its type, and convert them."""
    if type(content) is not dict:
        raise ValueError(f"{where or 'content'}: expected an object, got {content!r:.80}")
    check_keys(where or "content", content, set(types))
    return {name: read_value(kind, content[name], f"{where}.{name}".lstrip(".")) for name, kind in types.items()}


def check_keys(where: str, content: dict[str, Any], expected: set[str]) -> None:
    """Raise ValueError for a key that is unknown or missing."""
    if unknown := sorted(map(str, content.keys() - expected)):
        raise ValueError(f"{where}: unknown key {unknown[0]!r:.40} (known: {', '.join(sorted(expected))})")
    if missing := sorted(expected - content.keys()):
        raise ValueError(f"{where}: the key {missing[0]!r} is missing")


def read_value(kind: Any, value: Any, where: str) -> Any:
    """Check a value that JSON gave against an annotation, and convert it: lists to tuples, objects to dataclasses.

    Annotations are bool, int, float (finite), str, a `Literal` of texts, a tuple, list or dict of such, a dataclass
    (by its `from_json` if it has one), or one of them or None; errors name the value by `where`.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        (option,) = set(inner) - {NoneType}
        return None if value is None else read_value(option, value, where)
    if is_dataclass(kind):
        record: Any = kind
        if hasattr(record, "from_json"):
            return record.from_json(value)
        values = read_fields(field_types(record), value, where)
        try:
            return record(**values)
        except ValueError as error:
            raise ValueError(f"{where}.{error}") from None
    if origin in (tuple, list) and type(value) in (tuple, list):
        repeated = origin is list or inner[-1] is Ellipsis
        if repeated and inner[0] is not float and set(map(type, value)) <= {inner[0]}:
            return origin(value)  # quickly: a vocabulary is long
        if repeated or len(value) == len(inner):
            kinds = [inner[0]] * len(value) if repeated else inner
            return origin(read_value(one, entry, where) for one, entry in zip(kinds, value, strict=True))
    if origin is dict and type(value) is dict:
        return {name: read_value(inner[1], entry, f"{where}[{name!r:.40}]") for name, entry in value.items()}
    if (origin is Literal and value in inner) or (origin is None and type(value) is kind and kind is not float):
        return value
    if kind is float and type(value) in (int, float) and abs(value) <= sys.float_info.max:
        return float(value)
    raise ValueError(f"{where}: expected {described(kind)}, got {value!r:.80}")


def described(kind: Any) -> str:
    """Return an annotation in words, as `read_value` takes it.

    >>> described(float | None), described(dict[str, int])
    ('a finite number', 'by name, a whole number')
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (UnionType, Union):
        return " or ".join(described(member) for member in inner if member is not NoneType)
    if origin is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if origin in (tuple, list):
        return f"a list of {described(inner[0])}"
    if origin is dict:
        return f"by name, {described(inner[1])}"
    names = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text", Path: "a path"}
    return names.get(kind, "an object")
