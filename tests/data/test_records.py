"""JSON records come back as they were written; a value of another type, a missing field and NaN are one clear line."""

import json
from dataclasses import dataclass
from typing import Literal

import pytest

from chainrule.data._atomic import Record


@dataclass(frozen=True)
class Unit:
    name: str
    factor: float


@dataclass(frozen=True)
class Settings(Record):
    units: tuple[Unit, ...]
    kind: Literal["a", "b"] | None
    counts: dict[str, int]
    span: tuple[int, float] | None
    exact: bool

    def __post_init__(self) -> None:
        if not self.units:
            raise ValueError("units: expected at least one")


WHOLE = Settings((Unit("s", 1.0), Unit("m", 60.0)), "a", {"rows": 3}, (1, 0.5), exact=True)


def test_a_record_comes_back_from_its_file(tmp_path):
    WHOLE.save(tmp_path / "settings.json")
    assert Settings.load(tmp_path / "settings.json") == WHOLE
    with pytest.raises(FileNotFoundError, match=r"none\.json: no such file"):
        Settings.load(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format: expected 1, got 2"),
        ({"format": True}, "format: expected 1, got True"),
        ({"more": 1}, "content: unknown key 'more'"),
        ({"units": []}, "units: expected at least one"),
        ({"units": {}}, r"units: expected a list of an object, got \{\}"),
        ({"units": [{"name": "s"}]}, "units: the key 'factor' is missing"),
        ({"units": [{"name": "s", "factor": float("nan")}]}, "units.factor: expected a finite number, got nan"),
        ({"units": [{"name": "s", "factor": 10**400}]}, "units.factor: expected a finite number"),
        ({"units": [{"name": 3, "factor": 1}]}, "units.name: expected text, got 3"),
        ({"kind": "c"}, "kind: expected one of a, b, got 'c'"),
        ({"kind": ["a"]}, "kind: expected one of a, b"),
        ({"counts": {"rows": True}}, r"counts\[.rows.\]: expected a whole number, got True"),
        ({"counts": {"rows": 1.0}}, r"counts\[.rows.\]: expected a whole number"),
        ({"span": [1]}, "span: expected a list"),
        ({"exact": 1}, "exact: expected true or false, got 1"),
        ({"exact": "x" * 10_000}, "exact: expected true or false"),
    ],
)
def test_a_changed_record_is_refused_in_a_short_line(tmp_path, change, message):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(WHOLE.to_json() | change))
    with pytest.raises(ValueError, match=rf"settings\.json: {message}.*; the file is damaged") as caught:
        Settings.load(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) - len(str(path)) < 200


@pytest.mark.parametrize("content", [3, [1], None, "text"])
def test_what_is_no_object_is_no_record(content):
    with pytest.raises(ValueError, match="expected an object, got"):
        Settings.from_json(content)
