"""Buffers that are not saved, as they follow from the arguments of a module."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn


def fixed_buffer(module: nn.Module, name: str, value: Tensor | Callable[[], Tensor]) -> None:
    """Register a buffer that follows from the constructor's arguments; `state_dict` leaves it out.

    `load_state_dict` restores its value, a tensor or what a function makes. A large model is built on the meta device,
    and `to_empty` gives its buffers memory in which anything may stand: masks, for example, that let a model see the
    future.
    """
    if isinstance(value, Tensor):
        if value.is_meta:
            raise ValueError(f"{name}: expected a tensor with values, got one on the meta device: make it on the CPU")
        buffer = value.to(torch.get_default_device()) if value.device.type == "cpu" else value
    else:
        buffer = value()
    module.register_buffer(name, buffer, persistent=False)
    module.register_load_state_dict_post_hook(partial(_restore, name, value))


def _restore(name: str, value: Tensor | Callable[[], Tensor], module: nn.Module, _: object) -> None:
    buffer = module.get_buffer(name)
    device = buffer.device
    if buffer.is_meta:  # as where weights were assigned, not copied
        device = next((weight.device for weight in module.parameters()), torch.device("cpu"))
    with torch.device("cpu"):
        tensor = value if isinstance(value, Tensor) else value()
    setattr(module, name, tensor.to(device, buffer.dtype))
