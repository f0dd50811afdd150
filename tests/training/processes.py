"""Several processes of one script, as `torchrun` starts them."""

import os
import socket
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def run_in_processes(world: int, script: str, *arguments: object) -> None:
    """Do what `torchrun --nproc-per-node` does, without its own second of imports."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    group = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    group["PYTHONPATH"] = os.pathsep.join(filter(None, [str(TESTS), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, Path(__file__).with_name(script), *map(str, arguments)]
    workers = [
        subprocess.Popen(command, env=os.environ | group | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
                         stderr=subprocess.PIPE, text=True)
        for rank in range(world)
    ]  # fmt: skip
    try:
        errors = [worker.communicate(timeout=900)[1] for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    assert [worker.returncode for worker in workers] == [0] * world, errors
