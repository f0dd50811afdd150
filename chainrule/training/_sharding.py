"""Weights, gradients and moments divided among processes: FSDP2 around the objective of a training."""

import copy
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from chainrule._base import TrainableModel
from chainrule.option_error import OptionError, option
from chainrule.training._evaluate import Objective
from chainrule.training._parallel import Processes, part_of, refuse_divided, whole_of


class WholeModel:
    """A model that each process holds whole, with the interface of `ShardedModel`."""

    def __init__(self, model: TrainableModel, dtype: torch.dtype, group: Processes, note: str = ""):
        self.model = model
        self.objective = group.distribute(Objective(model, dtype))
        self.note = note

    def whole(self) -> AbstractContextManager[None]:
        return nullcontext()

    def fill(self, *, everywhere: bool) -> None:
        """Do nothing."""

    def release(self) -> None:
        """Do nothing."""


class ShardedModel:
    """A twin of a model whose weights, gradients and moments are divided among processes.

    Each process holds a part of the rows of every weight, of its gradient and of its moments (ZeRO, Rajbhandari et al.
    2020), by `torch.distributed.fsdp.fully_shard`. Weights are assembled before they are needed, and the gradients of
    the processes averaged. The hooks that do this look for tensors in what a module returns. A model returns a
    distribution, so they are attached to the objective, which returns nats, and to blocks that map tensors to tensors.
    A block's weights are whole only while it computes; all other weights from the beginning of the forward pass to the
    end of the backward pass.

    The model itself stays an ordinary one, for validations, samples and files. It holds weights only within `whole`.

    Attributes:
        model: the twin, whose parameters the optimiser changes.
        objective: the twin's `Objective`, to compute gradients with.

    Args:
        model: on the device of the group. The first process's weights and buffers replace those of the others. Buffers
            are shared with the twin.
        dtype: number format of matrix products.
        group: at least two processes.

    Raises:
        OptionError: FSDP2 cannot divide the model.
    """

    def __init__(self, model: TrainableModel, dtype: torch.dtype, group: Processes):
        from torch.distributed.device_mesh import init_device_mesh  # these imports take a second
        from torch.distributed.fsdp import fully_shard

        _check_weights(model)
        self._whole, self._group = model, group
        shared: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
        for weight in model.parameters():
            shared[id(weight)] = nn.Parameter(weight.detach().contiguous(), weight.requires_grad)
        for tensor in shared.values():
            dist.broadcast(tensor.detach(), 0)
        self.model: TrainableModel = copy.deepcopy(model, shared)
        del shared  # with the last references to whole weights of the twin
        # It warns of blocks that return views, which must not be changed in place. No layer or model does that.
        warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor", UserWarning)
        mesh = init_device_mesh(group.device.type, (group.world,))
        for block in closed_blocks(self.model):
            fully_shard(block, mesh=mesh)
        self.objective = Objective(self.model, dtype)
        fully_shard(self.objective, mesh=mesh)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Fill the model of the first process within the context, which all processes enter."""
        self.fill(everywhere=False)
        try:
            yield
        finally:
            self.release()

    @torch.no_grad()
    def fill(self, *, everywhere: bool) -> None:
        """Copy the weights into the model of the first process, or of all."""
        for weight, part in zip(self._whole.parameters(), self.model.parameters(), strict=True):
            whole = whole_of(part.detach())
            if everywhere or self._group.first:
                weight.data = whole

    def release(self) -> None:
        """Free the weights of the model."""
        for weight in self._whole.parameters():
            weight.data = weight.new_empty(0)

    @property
    def note(self) -> str:
        """The memory that is divided, in a line."""
        weights = [weight.nbytes for weight in self.model.parameters()]
        parts = [part_of(weight).nbytes for weight in self.model.parameters()]
        return (
            f"divided among {self._group.world} processes: this one holds {sum(parts) / 1e6:,.1f} of "
            f"{sum(weights) / 1e6:,.1f} MB of weights between steps, and as large a part of gradients and moments"
        )


def trainee(model: TrainableModel, dtype: torch.dtype, group: Processes, *, shard: bool) -> WholeModel | ShardedModel:
    """Return what is trained in each of some processes: the model, or its part; one process has no one to share with.

    Raises:
        ValueError: the caller has divided the model already.
        OptionError: FSDP2 cannot divide the model.
    """
    refuse_divided(model)
    if shard and group.world > 1:
        return ShardedModel(model, dtype, group)
    return WholeModel(model, dtype, group, "there is one process, so that nothing is divided" if shard else "")


def closed_blocks(model: nn.Module) -> list[nn.Module]:
    """Return blocks that are called as modules, from tensors to tensors, and whose weights nothing else reads.

    >>> from chainrule.models import TransformerLM
    >>> [type(block).__name__ for block in closed_blocks(TransformerLM(5, model_size=8, num_layers=2, num_heads=2))]
    ['TransformerBlock', 'TransformerBlock']
    """
    blocks: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for part in model.modules():  # a block comes before its parts
        if getattr(type(part), "is_closed", False) and part not in inside:
            blocks.append(part)
            inside |= set(part.modules())
    return blocks


def _check_weights(model: nn.Module) -> None:
    """Raise OptionError for weights that FSDP2 cannot divide."""
    reason = ""
    for name, weight in model.named_parameters():
        if not weight.dim():
            reason = f"{name} is a single number"
    if len({weight.dtype for weight in model.parameters() if weight.requires_grad}) > 1:
        reason = "its weights have several number formats"
    if reason:
        raise OptionError(
            "shard", f"FSDP2 cannot divide this {type(model).__name__}: {reason}", f"leave out {option('shard')}"
        )
