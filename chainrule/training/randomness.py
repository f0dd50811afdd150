"""All randomness of training, as a function of where in the run it is drawn."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Leave the caller's random state as it was, whatever is drawn in the block."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


def seed_step(seed: int, step: int, rank: int, purpose: str = "step") -> None:
    """Make what is drawn next a function of these arguments alone: there is no random state to save."""
    digest = hashlib.sha256(f"{purpose} {seed} {step} {rank}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:7]))
