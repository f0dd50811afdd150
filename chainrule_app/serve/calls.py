"""Threads for all work that is no stream of text: a call ends when nobody waits for it, or its time is over."""

import asyncio
import ctypes
import sys
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from typing import Any, TypeVar

import torch

from chainrule_app.serve.guard import Busy, Limits

T = TypeVar("T")
_AGAIN = 0.05  # seconds until a call that cannot be stopped now is told again
_WHOLE = ("importlib", "_frozen_importlib", "numba", "llvmlite")  # packages whose functions are not broken off


class Stopped(BaseException):
    """Event: nobody waits for the call any longer."""


class Calls:
    """A pool of threads that call functions."""

    def __init__(self, limits: Limits):
        self.limits, self.waiting = limits, 0
        self._queue: SimpleQueue[_Call | None] = SimpleQueue()
        # Daemons, unlike the threads of an executor: a long call does not keep the server from ending.
        self._threads = [Thread(target=self._work, name="chainrule calls", daemon=True) for _ in range(limits.calls)]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """True if all threads live."""
        return all(thread.is_alive() for thread in self._threads)

    async def call(self, function: Callable[..., T], /, *args: Any, **options: Any) -> T:
        """Call a function in a thread; it is stopped where this task is cancelled.

        Raises:
            Busy: too many calls wait; answered with 429.
            TimeoutError: the limit of seconds has passed; answered with 504.
        """
        if self.waiting >= self.limits.waiting:
            raise Busy(f"{self.waiting} requests wait: try again in a moment")
        self.waiting += 1
        call, loop = _Call(partial(function, *args, **options)), asyncio.get_running_loop()
        call.future.add_done_callback(lambda _: _soon(loop, self._ended))
        self._queue.put(call)
        try:
            async with asyncio.timeout(self.limits.seconds):
                answer: asyncio.Future[T] = asyncio.wrap_future(call.future)
                answer.add_done_callback(_look_at)
                return await asyncio.shield(answer)
        finally:
            _stop(call, loop)

    def close(self) -> None:
        """End the threads when they are free."""
        for _ in self._threads:
            self._queue.put(None)

    def _work(self) -> None:
        while (call := self._queue.get()) is not None:
            call.run()

    def _ended(self) -> None:
        self.waiting -= 1


class _Call:
    """A function that is called in a thread, where `Stopped` is raised between two steps of Python to stop it."""

    def __init__(self, function: Callable[[], Any]):
        self.future, self._function = Future[Any](), function
        self._lock, self._thread, self._stopped = Lock(), 0, False

    def run(self) -> None:
        """Call the function, in the thread for it."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            try:
                self._begin()
                with torch.enable_grad():  # whatever an earlier call of this thread left
                    result = self._function()
            finally:
                self._end()
        except BaseException as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(result)

    def stop(self) -> bool:
        """Stop the call, unless it imports or compiles just now, which would be left half done; tell whether it did."""
        with self._lock:
            if self.future.cancel() or self.future.done() or self._stopped:
                return True
            if self._thread and _is_inside(self._thread, _WHOLE):
                return False
            self._stopped = True
            if self._thread:
                _raise_in(self._thread, Stopped)
        return True

    def _begin(self) -> None:
        with self._lock:
            if self._stopped:
                raise Stopped
            self._thread = get_ident()

    def _end(self) -> None:
        """Let nothing be raised in this thread from here on."""
        with self._lock:
            self._thread = 0
            _raise_in(get_ident(), None)


def _raise_in(thread: int, error: type[BaseException] | None) -> None:
    """Raise an error in a thread before its next step of Python; None takes back what was not raised yet."""
    value = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), value)


def _is_inside(thread: int, packages: tuple[str, ...]) -> bool:
    """Tell if a thread is in a function of one of some packages."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in packages:
            return True
        frame = frame.f_back
    return False


def _stop(call: _Call, loop: asyncio.AbstractEventLoop) -> None:
    if not call.stop():
        loop.call_later(_AGAIN, _stop, call, loop)


def _look_at(answer: "asyncio.Future[Any]") -> None:
    """Look at the error of an answer, if it has one: asyncio logs those that nobody waits for any longer."""
    if not answer.cancelled():
        answer.exception()


def _soon(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(function)
    except RuntimeError:  # the loop is closed
        function()
