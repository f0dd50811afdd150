"""The processes that torchrun starts, where they wait for each other or fail outside collective operations.

Collectives have a time limit, half an hour by default, which preparing data may exceed, and where a process fails the
others report a lost connection. Here they poll the key-value store through which torchrun's processes meet.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path
from secrets import token_hex
from time import sleep
from typing import TYPE_CHECKING, TypeVar

from chainrule.option_error import PeerError, raw_text

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]  # torch exports it without saying so

T = TypeVar("T")
_PAUSE = 0.1  # seconds between two looks at the store


class Peers:
    """The processes of one training; all of them must call its methods in the same order."""

    def __init__(self, rank: int, store: "Store | None"):
        self._rank, self._store, self._waits = rank, store, count()

    def after_first(self, work: Callable[[], T]) -> T | None:
        """Return the result of `work` in the first process; the others wait for it, however long that takes."""
        if self._store is None:
            return work()
        done = f"done {next(self._waits)}"
        if self._rank == 0:
            result = work()
            self._store.set(done, "")
            return result
        while not self._store.check([done]):
            if self._store.check(["failure"]):
                raise PeerError(self._store.get("failure").decode())
            sleep(_PAUSE)
        return None

    def path(self, path: Path | None) -> Path:
        """Return the path of a run directory, or the first process's where another process has none."""
        if self._store is not None and self._rank == 0:
            self._store.set("path", str(path))
        if path is not None:
            return path
        assert self._store is not None, "a process alone has a path"
        return Path(self._store.get("path").decode())  # waits for it


@contextmanager
def ending_together() -> Iterator[Peers]:
    """Yield the processes of a training; where one fails, the others raise `PeerError` with the text of its error."""
    if "WORLD_SIZE" not in os.environ:
        yield Peers(0, None)
        return
    from chainrule.devices import process_shard  # which imports torch

    rank, world = process_shard()
    if world == 1:
        yield Peers(rank, None)
        return
    store = new_store()
    try:
        yield Peers(rank, store)
    except PeerError:
        raise
    except Exception as error:
        if (text := _earlier_failure(store, error)) is not None:
            raise PeerError(text) from None
        raise


def _earlier_failure(store: "Store", error: Exception) -> str | None:
    """Record the error of this process, or return that of the process that failed first."""
    try:
        if store.add("failures", 1) == 1:
            store.set("failure", raw_text(error))
            return None
        return store.get("failure").decode()
    except RuntimeError:  # the store is gone with the first process
        return "the first process ended"


_stores = count()


def new_store() -> "Store":
    """Return a store of its own for a purpose: all processes ask for as many, in the same order."""
    from torch import distributed

    name = f"chainrule {next(_stores)}"
    return distributed.PrefixStore(name, _rendezvous())  # type: ignore[attr-defined]  # likewise


@cache
def _rendezvous() -> "Store":
    from torch import distributed

    from chainrule.devices import process_shard

    store: Store = next(distributed.rendezvous("env://"))[0]  # type: ignore[attr-defined]  # likewise
    return distributed.PrefixStore(agree_on_name(store, *process_shard()), store)  # type: ignore[attr-defined]  # likewise


def agree_on_name(store: "Store", rank: int, world: int) -> str:
    """Return a name for what the present processes write into a store, the same in all of them and never used before.

    torchrun keeps its store when it starts processes again, with all that earlier ones wrote: their addresses, and that
    one of them had failed or had prepared the data. How often it restarted differs between machines.
    """
    own = token_hex(8)
    if rank:
        store.set(f"here {rank}", own)
    others = [str(other) for other in range(1, world)]
    while True:
        if rank and store.check(["name"]):
            name = store.get("name").decode()
            if own in name.split():  # of the present first process, who alone can know it
                store.set(f"agreed {rank}", name)
                if store.check([f"all agreed {name}"]):
                    return name
        elif not rank and all(store.check([f"here {other}"]) for other in others):
            name = " ".join([own, *(store.get(f"here {other}").decode() for other in others)])
            store.set("name", name)
            if all(store.check([key]) and store.get(key).decode() == name for key in map("agreed {}".format, others)):
                store.set(f"all agreed {name}", "")
                return name
        sleep(_PAUSE / 10)
