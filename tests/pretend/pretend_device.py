"""A pretend graphics card: tensors that say they are on it, compute on the processor, and refuse what CUDA refuses.

With PRETEND_DEVICE=mps it refuses float64 and complex128 as well, as graphics processors of Apple do.

It registers a backend with torch and replaces `torch.Generator` for the whole process: `conftest.py` keeps it away
from other tests.
"""

import os

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend


class _Backend(_DummyBackendModule):
    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]


_setup_privateuseone_for_python_backend("pretend", backend_module=_Backend())
torch.__future__.set_swap_module_params_on_conversion(True)  # the data of such a tensor cannot be set

DEVICE = torch.device("pretend", 0)
CPU = torch.device("cpu")
aten = torch.ops.aten

COPIES = {aten._to_copy.default, aten.copy_.default}
READS_AT = {aten.index.Tensor, aten._unsafe_index.Tensor}
WRITES_AT = {aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
# Where not even a number on the processor may stand beside tensors on the card.
STRICT = {
    aten.bmm.default,
    aten.bucketize.Tensor,
    aten.cat.default,
    aten.embedding.default,
    aten.gather.default,
    aten.index_select.default,
    aten.masked_fill.Scalar,
    aten.masked_fill.Tensor,
    aten.scatter.src,
    aten.scatter.value,
    aten.searchsorted.Tensor,
}
RECURRENCES = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}


class Mismatch(RuntimeError):  # noqa: N818 - CUDA raises a RuntimeError
    """CUDA would refuse this."""


APPLE = os.environ.get("PRETEND_DEVICE") == "mps"
TOO_WIDE = {torch.float64, torch.complex128} if APPLE else set()


class PretendTensor(torch.Tensor):
    """A tensor on the pretend card, with its numbers in `held`."""

    @staticmethod
    def __new__(cls, held):
        if held.dtype in TOO_WIDE:
            raise TypeError(f"cannot have a tensor of {held.dtype} on the card: the MPS framework has no float64")
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        made.held = held
        return made

    def __repr__(self):
        return f"PretendTensor({self.held})"

    @classmethod
    def __torch_dispatch__(cls, operator, types, arguments=(), options=None):
        return _run(operator, arguments, options or {})


class Card(TorchDispatchMode):
    """Makes tensors on the card where `device` says so, and looks at all operators."""

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        return _run(operator, arguments, options or {})


class Functions(TorchFunctionMode):
    """The few functions of torch that reach no operator that a mode sees."""

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = options or {}
        if function in (torch.tensor, torch.as_tensor) and not isinstance(arguments[0], torch.Tensor):
            made = function(*arguments, **{**options, "device": "cpu"})
            return PretendTensor(made) if _on_card(options.get("device")) else made
        if function is torch.Tensor.new_tensor and isinstance(arguments[0], PretendTensor):
            return PretendTensor(torch.tensor(arguments[1], dtype=options.get("dtype", arguments[0].dtype)))
        if function is torch.Tensor.__getitem__ and isinstance(arguments[1], list):
            return arguments[0][torch.tensor(arguments[1])]
        if function is torch.Tensor.tolist and isinstance(arguments[0], PretendTensor):
            return arguments[0].detach().held.tolist()
        if function in (torch.Tensor.numpy, torch.Tensor.__array__) and isinstance(arguments[0], PretendTensor):
            raise TypeError("a tensor on the card has no NumPy array: copy it with .cpu() first")
        if function in RECURRENCES:
            return _recurrence(function, arguments)
        result = function(*arguments, **options)
        generator = options.get("generator")
        if generator is not None and _on_card(generator.device) != isinstance(result, PretendTensor):
            raise Mismatch(f"{function.__name__}: a generator on {generator.device} for a result elsewhere")
        return result


class Generator(torch._C.Generator):
    """A generator that says where it is."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls, device="cpu")

    def __init__(self, device="cpu"):
        self._device = torch.device(device)

    @property
    def device(self):
        return self._device


torch.Generator = Generator


def on_card(tree):
    """A module, or a tree of tensors, on the card."""
    if isinstance(tree, nn.Module):
        return tree.to(DEVICE)
    return tree_map(lambda leaf: leaf.to(DEVICE) if isinstance(leaf, torch.Tensor) else leaf, tree)


def _on_card(device):
    return device is not None and torch.device(device).type == DEVICE.type


def _held(leaf):
    if isinstance(leaf, PretendTensor):
        return leaf.held
    return CPU if isinstance(leaf, torch.device) and _on_card(leaf) else leaf


def _run(operator, arguments, options):
    leaves, form = tree_flatten((arguments, options))
    there = [leaf for leaf in leaves if isinstance(leaf, PretendTensor)]
    here = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and not isinstance(leaf, PretendTensor)]
    _check_places(operator, arguments, there, here)
    device = options.get("device")
    if device is None and operator is aten._to_copy.default:
        result_there = isinstance(arguments[0], PretendTensor)
    else:
        result_there = bool(there) if device is None else _on_card(device)
    if operator is aten.copy_.default:
        _held(arguments[0]).copy_(_held(arguments[1]))
        return arguments[0]
    arguments, options = tree_unflatten([_held(leaf) for leaf in leaves], form)
    result = operator(*arguments, **{**options, "pin_memory": False} if "pin_memory" in options else options)
    if not result_there:
        return result
    own = {id(leaf.held): leaf for leaf in there}  # what is written in place stays the same tensor

    def wrapped(leaf):
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return own[id(leaf)] if id(leaf) in own else PretendTensor(leaf)

    return tree_map(wrapped, result)


def _check_places(operator, arguments, there, here):
    if not there or not here or operator in COPIES:
        return
    if operator in READS_AT | WRITES_AT:  # indices on the processor are fine, on the card for a tensor here are not
        beside = [] if operator in READS_AT else [arguments[2]]
        wrong = not isinstance(arguments[0], PretendTensor) or any(
            leaf.dim() and not isinstance(leaf, PretendTensor) for leaf in beside
        )
    else:
        wrong = operator in STRICT or any(leaf.dim() for leaf in here) or operator is aten.where.self
    if wrong:
        shapes = [[tuple(leaf.shape) for leaf in leaves] for leaves in (there, here)]
        raise Mismatch(f"{operator}: {shapes[0]} on the card, {shapes[1]} on the processor")


def _recurrence(function, arguments):
    """A fused recurrence, by the processor's kernel; the sizes of packed rows are to be here, all else there."""
    leaves, form = tree_flatten(arguments)
    if not any(isinstance(leaf, PretendTensor) for leaf in leaves):
        return function(*arguments)
    packed = isinstance(arguments[1], torch.Tensor) and arguments[1].dtype == torch.int64
    for leaf in leaves:
        sizes = packed and leaf is arguments[1]
        if isinstance(leaf, torch.Tensor) and isinstance(leaf, PretendTensor) == sizes:
            raise Mismatch(f"{function.__name__}: a tensor of shape {tuple(leaf.shape)} at the wrong place")
    held = [leaf.detach().held if isinstance(leaf, PretendTensor) else leaf for leaf in leaves]
    with _disable_current_modes():
        result = function(*tree_unflatten(held, form))
    return tuple(PretendTensor(leaf.detach()) for leaf in result)
