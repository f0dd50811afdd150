"""Wait for an answer only as long as somebody wants it."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

from chainrule.serve._errors import ClientGone

T = TypeVar("T")


async def while_wanted(receive: Receive, work: Coroutine[Any, Any, T], seconds: float) -> T:
    """Return the result of some work, which is cancelled where the client goes, or the time is over.

    Raises:
        ClientGone: the client has closed its connection.
        TimeoutError: the time is over.
    """
    working, gone = asyncio.ensure_future(work), asyncio.ensure_future(_gone(receive))
    try:
        await asyncio.wait({working, gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGone if gone.done() else TimeoutError
    finally:
        for task in (working, gone):
            task.cancel()


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
