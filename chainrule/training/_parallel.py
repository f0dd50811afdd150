"""Distributed training, signals that end a run, and random seeds per process and step."""

import gc
import hashlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from chainrule.devices import choose_device, process_shard
from chainrule.modes import seed_torch
from chainrule.option_error import UserError, option
from chainrule.peers import new_store
from chainrule.state import State, count_rows, expand, leaves, map_state

_DDP_OPTIONS = signature(DistributedDataParallel).parameters


def refuse_divided(module: nn.Module) -> None:
    """Refuse modules of `fully_shard`, whose type is not imported here, because that takes a second."""
    for name, part in module.named_modules():
        if any(kind.__name__ == "FSDPModule" for kind in type(part).__mro__):
            raise UserError(
                f"{name or 'model'}: fully_shard is not supported: its hooks look for tensors in what forward returns, "
                "which is a distribution here, and the gradients of the processes would not be averaged",
                f"leave it out, and pass {option('shard', True)} to divide the weights",
            )


class Processes:
    """Group of processes that train one model, each on its rows of every batch.

    Attributes:
        rank: number of this process.
        world: number of processes; this one trains on the rows rank::world of every batch.
        device: device of this process.
    """

    def __init__(self, rank: int, world: int, device: torch.device):
        self.rank = rank
        self.world = world
        self.device = device

    @classmethod
    @contextmanager
    def join(cls, device: str) -> Iterator["Processes"]:
        """Join the processes that torchrun started, or use this process alone; end a process group that it created."""
        rank, world = process_shard()
        chosen = choose_device(device)
        if world == 1:
            yield cls(0, 1, chosen)
            return
        ours = not dist.is_initialized()
        if ours:
            if chosen.type == "cuda":
                torch.cuda.set_device(chosen)
            backend = "cpu:gloo,cuda:nccl" if chosen.type == "cuda" else "gloo"
            dist.init_process_group(backend, store=new_store(), rank=rank, world_size=world)
        try:
            yield cls(rank, world, chosen)
        finally:
            if ours:
                gc.collect()  # a gradient reducer in a reference cycle would outlive the group and abort the exit
                dist.destroy_process_group()

    @property
    def first(self) -> bool:
        """True in the process that decides, reports and writes."""
        return self.rank == 0

    def distribute(self, objective: nn.Module) -> nn.Module:
        """Broadcast the first process's weights and buffers, and average gradients in every backward pass."""
        if self.world == 1:
            return objective
        for buffer in objective.buffers():
            dist.broadcast(buffer, 0)
        # Buffers are sent once above and not at each step: some are tables of millions of n-grams.
        at_each_step = "forward_sync_buffers" if "forward_sync_buffers" in _DDP_OPTIONS else "broadcast_buffers"
        options: dict[str, Any] = {at_each_step: False, "gradient_as_bucket_view": True}  # no copies of the gradient
        return DistributedDataParallel(objective, **options)

    def sum(self, values: Tensor) -> Tensor:
        """Sum over processes, in place, on the device of `values`."""
        return self.begin_sum(values)()

    def begin_sum(self, values: Tensor) -> Callable[[], Tensor]:
        """Begin to sum over processes, in place, while this process computes on; return what waits for the sum."""
        work: Any = dist.all_reduce(values, async_op=True) if self.world > 1 else None

        def ended() -> Tensor:
            if work is not None:
                work.wait()
            return values

        return ended

    def agree(self, decisions: Sequence[float]) -> list[float]:
        """Return the first process's numbers in every process."""
        if self.world == 1:
            return list(decisions)
        values = torch.tensor(decisions, dtype=torch.float64, device="cpu")
        dist.broadcast(values, 0)
        return values.tolist()

    def any(self, flag: bool) -> bool:
        """Return true if the flag is set in any process."""
        return bool(self.sum(torch.tensor(float(flag), device="cpu")))

    def gather(self, state: State) -> State:
        """Assemble the state of the whole batch in every process; all processes must call it."""
        if self.world == 1 or not leaves(state):
            return state
        state = expand(state, count_rows(state))
        counts = torch.zeros(self.world, dtype=torch.long, device="cpu")
        counts[self.rank] = count_rows(state)
        counts = self.sum(counts)
        check_shares_of_rows(counts.tolist())
        most = int(counts.max())
        # Row i of process r is row i * world + r of the batch; the last ranks may have one row fewer.
        present = (torch.arange(most, device="cpu").unsqueeze(1) < counts).flatten().to(self.device)

        def whole(leaf: Tensor) -> Tensor:
            padded = leaf.new_zeros(most, *leaf.shape[1:])
            padded[: len(leaf)] = leaf
            parts = [torch.empty_like(padded) for _ in range(self.world)]
            dist.all_gather(parts, padded)
            return torch.stack(parts, 1).flatten(0, 1)[present]

        return map_state(whole, state)

    def own_rows(self, state: State) -> State:
        """Return this process's rows of the whole batch's state, on its device."""
        return map_state(lambda leaf: leaf[self.rank :: self.world].contiguous().to(self.device), state)


def check_shares_of_rows(counts: Sequence[int]) -> None:
    """Raise ValueError unless each process has the rows rank::world of a batch."""
    whole = sum(counts)
    expected = [len(range(rank, whole, len(counts))) for rank in range(len(counts))]
    if list(counts) != expected:
        raise ValueError(
            f"train_batches: expected {expected} rows in the processes, rank::world of a batch of {whole}, "
            f"got {list(counts)}: see chainrule.devices.process_shard"
        )


def part_of(tensor: Tensor) -> Tensor:
    """Return the part of a divided tensor that this process holds; another tensor as it is."""
    return tensor.to_local() if is_divided(tensor) else tensor  # type: ignore[attr-defined]  # a DTensor


def is_divided(tensor: Tensor) -> bool:
    """Return whether a tensor is a DTensor, whose class is not imported here, because that takes a second."""
    return hasattr(tensor, "full_tensor")


def whole_of(tensor: Tensor) -> Tensor:
    """Return a divided tensor assembled from the parts of all processes, which all call this; another as it is."""
    return tensor.full_tensor() if is_divided(tensor) else tensor  # type: ignore[attr-defined]  # a DTensor


def divided_as(tensor: Tensor, other: Any) -> Tensor:
    """Divide a tensor, equal in all processes, as another of its shape is."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Restore the caller's random state after the block."""
    apple = torch.mps.get_rng_state() if device.type == "mps" else None
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            yield
        finally:
            if apple is not None:
                torch.mps.set_rng_state(apple)


def seed_step(seed: int, step: int, rank: int, purpose: str = "step") -> None:
    """Seed torch from these arguments, so that there is no random state to save."""
    digest = hashlib.sha256(f"{purpose} {seed} {step} {rank}".encode()).digest()
    seed_torch(int.from_bytes(digest[:7]))


class Interrupted(KeyboardInterrupt):
    """Error: Ctrl-C, SIGTERM or SIGHUP ended the run; `train(..., resume=True)` on the same directory continues it.

    Attributes:
        directory: the run directory.
        step: step that a resumed run continues from; 0 if it starts again.
    """

    def __init__(self, directory: Path, step: int):
        self.directory = directory
        self.step = step
        super().__init__(f"interrupted; step {step} is saved in {directory}: resume=True continues from it")


STOP = "stop"  # in a run directory: a file that ends the run
_LOOK = 0.5  # seconds between two looks for it, which a file system of a network may make slow


class Interrupts:
    """Requests to end the run: signals, and a file of this name, which another process can write.

    Only a second Ctrl-C quits without saving: a terminal that closes sends SIGHUP more than once, and what ends a
    service or a job sends several signals too.
    """

    def __init__(self, file: Path | None = None, *, patient: bool):
        self._signalled = False
        self._patient = patient
        self._file, self._looked = file, monotonic()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Record a signal as a request; raise KeyboardInterrupt at a later Ctrl-C, unless `patient`."""
        if self._signalled and number == signal.SIGINT and not self._patient:
            raise KeyboardInterrupt
        self._signalled = True

    @property
    def requested(self) -> bool:
        """True once a signal has come or the file is there."""
        if not self._signalled and self._file is not None and monotonic() - self._looked > _LOOK:
            self._signalled, self._looked = self._file.is_file(), monotonic()
        return self._signalled

    def forget_file(self) -> None:
        """Remove the file."""
        if self._file is not None and self._file.is_file():
            self._file.unlink()


@contextmanager
def deferred_interrupts(file: Path | None = None, *, patient: bool = False) -> Iterator[Interrupts]:
    """Treat Ctrl-C, SIGTERM and SIGHUP as requests in the block; `patient` ignores repetitions, as torchrun sends.

    So is a file, which is removed before and after the block.
    """
    interrupts = Interrupts(file, patient=patient)
    allowed = threading.current_thread() is threading.main_thread()  # elsewhere Python allows no handlers
    interrupts.forget_file()
    before = {number: signal.signal(number, interrupts) for number in _ending_signals()} if allowed else {}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        interrupts.forget_file()


def _ending_signals() -> list[signal.Signals]:
    """Return the signals that end a run; SIGHUP, of a terminal that closes, unless `nohup` has it ignored."""
    signals = [signal.SIGINT, signal.SIGTERM]
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signals.append(signal.SIGHUP)
    return signals
