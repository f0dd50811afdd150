"""Limits of what a request may ask for, and of how much waits."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Limits of requests. A request beyond one is refused; nothing is cut silently.

    Attributes:
        body: bytes of a request's body.
        body_seconds: until a request's head, and then its body, must have come.
        prompt: symbols of a prompt.
        n: samples of one prompt.
        alternatives: likeliest symbols reported with each symbol.
        tokens: symbols to draw, and the largest integer that an option may be.
        seconds: until a request must be answered, streams included.
        rows: texts drawn side by side.
        waiting: texts, or other requests, that wait for a worker; further ones get status 429.
        connections: open at a time; further ones get status 503.
    """

    body: int = 4 << 20
    body_seconds: float = 20.0
    prompt: int = 1 << 16
    n: int = 64
    alternatives: int = 20
    tokens: int = 1 << 14
    seconds: float = 300.0
    rows: int = 64
    waiting: int = 512
    connections: int = 256


class Busy(RuntimeError):  # noqa: N818  a state, not a mistake
    """Too much waits already."""
