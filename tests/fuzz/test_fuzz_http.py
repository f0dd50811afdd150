"""A few requests of the fuzzer to a server of two runs, and, marked slow, some hundreds to all six."""

from collections import Counter

import pytest
from fuzz_http import KINDS, LEAST_VALID, Request, problem, run_cases, served, unwell

ERROR = b'{"error": {"message": "prompt: expected a text"}}'


@pytest.mark.parametrize(
    ("kinds", "cases"), [(["text", "table"], 12), pytest.param(KINDS, 400, marks=pytest.mark.slow)]
)
def test_requests_are_answered_or_refused_in_one_line(kinds: list[str], cases: int) -> None:
    statuses = Counter[int | None]()
    with served(list(kinds)) as (port, log):
        for case in run_cases(port, range(cases), 0, list(kinds)):
            assert case.problem is None, f"case {case.number}: {case.request}\n{case.problem}"
            statuses[case.status] += 1
        assert unwell(port, log) is None
    assert statuses[200] >= LEAST_VALID * cases


@pytest.mark.parametrize(
    ("status", "content", "is_valid", "found"),
    [
        (200, b"{}", True, False),
        (400, ERROR, True, True),
        (400, ERROR, False, False),
        (404, b"Not Found", False, True),
        (400, b'{"error": {"message": "two\\nlines"}}', False, True),
        (400, b'{"error": {"message": ""}}', False, True),
        (500, ERROR, False, True),
        (503, ERROR, False, True),
        (200, b"Traceback (most recent call last)", False, True),
        (0, b"", False, True),
    ],
)
def test_what_counts_as_a_failure(status: int, content: bytes, is_valid: bool, found: bool) -> None:
    request = Request("POST", "/v1/completions", {})
    assert (problem(request, status, content, is_valid=is_valid) is not None) == found


def test_no_http_may_end_without_an_answer() -> None:
    assert problem(Request("", "", raw=b"x"), 0, b"", is_valid=False) is None
