"""Requests of one kind that come at about the same time, answered by one call.

A call for one row takes nearly as long as one for twenty. Requests therefore wait for the call that is under way and a
few milliseconds more, and the next call answers all of them. It waits for those that were answered just now, who may
ask again, but at most as long as their call took: two groups of clients would take turns at half the speed.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

_LONGEST = 0.02  # seconds that a call waits for others
Answer = Callable[[list[list[Any]]], Awaitable[Sequence[Any]]]  # of the items of each request


class Together:
    """Requests that wait for a common call.

    Args:
        pause: seconds that a first request waits for others.
        most: items of a call.
    """

    def __init__(self, pause: float = 0.002, most: int = 16):
        self.pause, self.most = pause, most
        self._waiting: defaultdict[Hashable, list[tuple[list[Any], asyncio.Future[Any]]]] = defaultdict(list)
        self._working: dict[Hashable, asyncio.Task[None]] = {}
        self._expected: dict[Hashable, tuple[int, asyncio.Event]] = {}  # requests that the next call waits for

    async def call(self, kind: Hashable, items: list[Any], answer: Answer) -> Any:
        """Return the answer for some items; `answer` gets those of all requests of a kind that wait."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[kind].append((items, future))
        if kind in self._expected and self._are_enough(kind, self._expected[kind][0]):
            self._expected[kind][1].set()
        if kind not in self._working:
            self._working[kind] = asyncio.create_task(self._work(kind, answer))
        return await future

    async def _work(self, kind: Hashable, answer: Answer) -> None:
        try:
            await asyncio.sleep(self.pause)
            while requests := self._next(kind):
                began, expected = monotonic(), len(requests)
                await _answer(requests, answer)
                await self._gather(kind, expected + len(self._waiting[kind]), monotonic() - began + self.pause)
        finally:
            del self._working[kind], self._waiting[kind]

    async def _gather(self, kind: Hashable, number: int, seconds: float) -> None:
        """Wait for so many requests, but not long, and not for more than one call can answer."""
        event = asyncio.Event()
        self._expected[kind] = number, event
        if not self._are_enough(kind, number):
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), min(seconds, _LONGEST))
        del self._expected[kind]

    def _are_enough(self, kind: Hashable, number: int) -> bool:
        waiting = self._waiting[kind]
        return len(waiting) >= number or sum(len(items) for items, _ in waiting) >= self.most

    def _next(self, kind: Hashable) -> list[tuple[list[Any], "asyncio.Future[Any]"]]:
        """Take the requests of the next call, in which somebody is still interested."""
        waiting, count = self._waiting[kind], 0
        taken: list[tuple[list[Any], asyncio.Future[Any]]] = []
        while waiting and (not taken or count + len(waiting[0][0]) <= self.most):
            items, future = waiting.pop(0)
            if not future.done():
                taken.append((items, future))
                count += len(items)
        return taken


async def _answer(requests: list[tuple[list[Any], "asyncio.Future[Any]"]], answer: Answer) -> None:
    try:
        found = await answer([items for items, _ in requests])
    except Exception as error:
        if len(requests) == 1:
            _settle(requests[0][1], error)
            return
        for request in requests:  # so that each has the error that is its own
            await _answer([request], answer)
        return
    for (_, future), one in zip(requests, found, strict=True):
        _settle(future, one)


def _settle(future: "asyncio.Future[Any]", found: Any) -> None:
    if future.done():  # its client has gone
        return
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)
