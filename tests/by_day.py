"""Which of many cases are tried by day; all are at night (`make nightly`)."""

from collections.abc import Iterable
from typing import Any

import pytest


def by_day(cases: Iterable[Any], *few: Any) -> list[Any]:
    """The cases, of which all but a few are slow."""
    return [case if case in few else pytest.param(case, marks=pytest.mark.slow) for case in cases]
