"""Processes that torchrun starts again agree on a name, whatever earlier ones left in its store."""

from threading import Thread

import pytest
import torch.distributed as dist

from chainrule.peers import agree_on_name

WORLD = 3


def agreed(store):
    """Return the names that the processes of one start agree on."""
    names = {}

    def join(rank):
        names[rank] = agree_on_name(store, rank, WORLD)

    threads = [Thread(target=join, args=(rank,), daemon=True) for rank in range(WORLD)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return [names.get(rank) for rank in range(WORLD)]


HERE = {"here 1": "one", "here 2": "two"}
NAME = "zero one two"
LEFT = {
    "nothing": {},
    "a process before it was answered": {"here 2": "earlier"},
    "a name without answers": HERE | {"name": NAME},
    "one answer": HERE | {"name": NAME, "agreed 1": NAME},
    "an agreement": HERE | {"name": NAME, "agreed 1": NAME, "agreed 2": NAME, f"all agreed {NAME}": ""},
}


@pytest.mark.parametrize("left", LEFT)
def test_all_processes_agree_on_a_new_name(left):
    store = dist.HashStore()
    for key, value in LEFT[left].items():
        store.set(key, value)
    names = [agreed(store) for _ in range(3)]
    for every in names:
        assert every == [every[0]] * WORLD
    assert len({NAME, *(every[0] for every in names)}) == 4
