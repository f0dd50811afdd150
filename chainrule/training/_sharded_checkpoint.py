"""Weights and moments of a divided training on disk: folders of `torch.distributed.checkpoint`, in safetensors.

Each process writes its parts, and any number of processes read them. There are two folders, used in turn, so that the
one that `checkpoint.safetensors` names stays whole until the next one is.
"""

import hashlib
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from chainrule.training._optimiser import moments
from chainrule.training._parallel import Processes

FOLDERS = ("checkpoint-0", "checkpoint-1")
FILE_BYTES = 1 << 25  # of a file of all processes together


def save_shards(
    directory: Path, before: str, model: nn.Module, optimiser: Optimizer, group: Processes
) -> dict[str, Any]:
    """Write weights and moments, each process its parts, and return what the checkpoint records about the files.

    Args:
        directory: of the run. All processes share it.
        before: folder that the last checkpoint names, which stays; empty without one.
        model: divided, or whole in a single process.
        optimiser: of `model`.
        group: all its processes call this.
    """
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict_saver import save

    folder = directory / FOLDERS[before == FOLDERS[0]]
    if group.first:
        shutil.rmtree(folder, ignore_errors=True)  # what a save that was killed left
    group.agree([0.0])  # a barrier
    tensors = {f"model.{name}": weight.detach() for name, weight in model.named_parameters()}
    tensors |= {f"optimiser.{name}": moment for name, moment in moments(optimiser, model).items()}
    writer = HuggingFaceStorageWriter(str(folder), _file_numbers(tensors), save_distributed=True)
    with _in_one_process():
        save(tensors, storage_writer=writer, no_dist=group.world == 1)
    return {"folder": folder.name, "files": _digests(folder, sorted(path.name for path in folder.iterdir()), group)}


def _file_numbers(tensors: dict[str, Tensor]) -> dict[str, int]:
    """Return the file of each tensor, from 1 on. torch copies what goes into a file three times before it writes it."""
    numbers: dict[str, int] = {}
    number, size = 1, 0
    for name, tensor in tensors.items():
        if size and size + tensor.nbytes > FILE_BYTES:
            number, size = number + 1, 0
        numbers[name], size = number, size + tensor.nbytes
    return numbers


def remove_shards(directory: Path, current: str) -> None:
    """Delete the folder that the checkpoint no longer names."""
    for name in set(FOLDERS) - {current}:
        shutil.rmtree(directory / name, ignore_errors=True)


class SavedShards:
    """The files of `save_shards`, checked by their digests.

    Args:
        directory: of the run.
        record: result of `save_shards`.
        group: all its processes read the files.

    Raises:
        ValueError: the files are damaged or missing.
    """

    def __init__(self, directory: Path, record: Any, group: Processes):
        folder = record.get("folder") if isinstance(record, dict) else None
        if folder not in FOLDERS:
            raise ValueError(f"{directory}: expected a checkpoint that names its folder, got {record!r:.80}: damaged")
        self.folder, files = directory / folder, record.get("files")
        there = sorted(path.name for path in self.folder.iterdir()) if self.folder.is_dir() else []
        if not isinstance(files, dict) or there != sorted(files) or _digests(self.folder, there, group) != files:
            raise ValueError(
                f"{self.folder}: expected the files of the checkpoint as chainrule wrote them, got others, or ones "
                "that are truncated or were changed: restore the folder from a copy"
            )

    def load_weights(self, model: nn.Module) -> None:
        """Copy the weights into a whole model."""
        self._load({f"model.{name}": weight.detach() for name, weight in model.named_parameters()})

    def moments(self, model: nn.Module) -> dict[str, Tensor]:
        """Return the moments for the weights of a model, divided as they are; see `chainrule.training._optimiser`."""
        weights, tensors = dict(model.named_parameters()), {}
        for key in self._reader().read_metadata().state_dict_metadata:
            part, _, moment = key.partition(".")
            kind, _, name = moment.partition(".")
            if part == "optimiser" and name in weights:
                step = kind == "step"
                tensors[key] = torch.zeros((), device="cpu") if step else torch.zeros_like(weights[name].detach())
        self._load(tensors)
        return {key.partition(".")[2]: tensor for key, tensor in tensors.items()}

    def _load(self, tensors: dict[str, Tensor]) -> None:
        """Read tensors of the same names in place, of divided ones the own part."""
        from torch.distributed.checkpoint.api import CheckpointException
        from torch.distributed.checkpoint.state_dict_loader import load

        try:
            with _in_one_process():  # each reads on its own
                load(tensors, storage_reader=self._reader(), no_dist=True)
        except (CheckpointException, ValueError, RuntimeError) as error:
            said = " ".join(str(error).split())
            raise ValueError(f"{self.folder}: expected weights of the same model ({said:.300})") from None

    def _reader(self) -> Any:
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

        return HuggingFaceStorageReader(str(self.folder))


@contextmanager
def _in_one_process() -> Iterator[None]:
    """Ignore the warning that torch gives although it was told that there is one process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)
        yield


def _digests(folder: Path, names: list[str], group: Processes) -> dict[str, str]:
    """Compute the SHA-256 of files, of which each process reads some."""
    digests = torch.zeros(len(names), 32, dtype=torch.long, device="cpu")
    for index in range(group.rank, len(names), group.world):
        with (folder / names[index]).open("rb") as file:
            digests[index] = torch.tensor(list(hashlib.file_digest(file, "sha256").digest()), device="cpu")
    return {name: bytes(row).hex() for name, row in zip(names, group.sum(digests).tolist(), strict=True)}
