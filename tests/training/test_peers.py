"""Processes that torchrun starts: they wait for the first, fail together, and train the same run, however many."""

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest
from fit_in_processes import losses
from torch.distributed import HashStore

from chainrule import peers as peers_module
from chainrule.option_error import OptionError, PeerError
from chainrule.peers import Peers, ending_together


def test_all_wait_for_the_first_and_none_for_another():
    store, order = HashStore(), []

    def run(rank):
        peers = Peers(rank, store)
        for part in "ab":
            made = peers.after_first(lambda part=part: sleep(0.3 * (rank == 0)) or order.append(part) or part)
            assert made == (part if rank == 0 else None)
            order.append((rank, part))
        return peers.path(Path("run") if rank == 0 else None)

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, range(3))) == [Path("run")] * 3
    places = {entry: place for place, entry in enumerate(order)}
    assert len(order) == 8
    assert all(places["a"] < places[rank, "a"] and places["b"] < places[rank, "b"] for rank in range(3))


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_in_one_process_ends_them_all(failing, monkeypatch):
    store = HashStore()
    monkeypatch.setattr(peers_module, "new_store", lambda: store)

    def fail(rank):
        sleep(0.3 * (rank != failing))
        raise OptionError("data", "no rows") if rank == failing else ValueError("the connection was lost")

    def run(rank):
        with pytest.raises(ValueError) as caught, ending_together():
            fail(rank)
        return type(caught.value), caught.value.written("--{} {}".format)

    monkeypatch.setenv("WORLD_SIZE", "2")
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, range(2)))
    assert found == [(PeerError if rank != failing else OptionError, "--data None: no rows") for rank in range(2)]


def test_an_error_of_the_first_ends_those_that_wait_for_it(monkeypatch):
    store = HashStore()
    monkeypatch.setattr(peers_module, "new_store", lambda: store)
    monkeypatch.setenv("WORLD_SIZE", "2")

    def refuse():
        sleep(0.3)
        raise ValueError("no data")

    def run(rank):
        with pytest.raises(ValueError, match="no data") as caught, ending_together():
            Peers(rank, store).after_first(refuse)
        return type(caught.value)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [ValueError, PeerError]


def started(world, directory):
    """Do what torchrun does; return what each process found, and its standard error."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    group = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, Path(__file__).with_name("fit_in_processes.py"), directory]
    workers = [
        subprocess.Popen(command, env=os.environ | group | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                         stderr=subprocess.PIPE, text=True)
        for rank in range(world)
    ]  # fmt: skip
    errors = [worker.communicate(timeout=900)[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * world, errors
    return [json.loads((directory / f"found-{world}-{rank}").read_text()) for rank in range(world)], errors


@pytest.mark.slow
def test_any_number_of_processes_goes_on_with_a_run(tmp_path):
    """Three refused to go on with what two had begun, and two a batch of five rows."""
    two, errors = started(2, tmp_path)
    three, four = (started(world, tmp_path)[0][0]["nats"] for world in (3, 4))
    one = losses(tmp_path / "one", 4)
    for steps in (6, 8):  # the learning rate depends on the total
        one |= losses(tmp_path / "one", steps)
    together = two[0]["nats"] | three | four
    assert sorted(one) == sorted(map(int, together))
    assert [together[str(step)] for step in one] == pytest.approx(list(one.values()), rel=1e-5)
    # A run without a directory is that of the first process; it failed in the second.
    assert two[0]["path"] == two[1]["path"]
    # One line tells the error of all.
    assert [found["status"] for found in two] == [2, 2]
    lines = [[line for line in error.partition("now\n")[2].splitlines() if "reading" not in line] for error in errors]
    assert len(lines[0]) == 1
    assert "expected at least" in lines[0][0]
    assert lines[1] == []
