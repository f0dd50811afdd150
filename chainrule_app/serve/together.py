"""Requests of one kind that come at about the same time, answered by one call.

A call for one row takes nearly as long as one for twenty. Requests therefore wait for the call that is under way and a
few milliseconds more, and the next call answers all of them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any

Answer = Callable[[list[list[Any]]], Awaitable[Sequence[Any]]]  # of the items of each request


class Together:
    """Requests that wait for a common call.

    Args:
        pause: seconds that a first request waits for others.
        most: items of a call.
    """

    def __init__(self, pause: float = 0.002, most: int = 32):
        self.pause, self.most = pause, most
        self._waiting: defaultdict[Hashable, list[tuple[list[Any], asyncio.Future[Any]]]] = defaultdict(list)
        self._working: dict[Hashable, asyncio.Task[None]] = {}

    async def call(self, kind: Hashable, items: list[Any], answer: Answer) -> Any:
        """Return the answer for some items; `answer` gets those of all requests of a kind that wait."""
        future = asyncio.get_running_loop().create_future()
        self._waiting[kind].append((items, future))
        if kind not in self._working:
            self._working[kind] = asyncio.create_task(self._work(kind, answer))
        return await future

    async def _work(self, kind: Hashable, answer: Answer) -> None:
        try:
            await asyncio.sleep(self.pause)
            while requests := self._next(kind):
                await _answer(requests, answer)
                await asyncio.sleep(self.pause)  # in which those that were answered ask again
        finally:
            del self._working[kind], self._waiting[kind]

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
