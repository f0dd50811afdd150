"""States: trees of batch-first tensors, a model's memory of the elements it has read.

Leaves are tensors of shape (B, ...); branches are tuples, lists, dicts and `None`, and `Shared` in a search. A state is
never stored on a module, so it can be forked (`select` with repeated rows), reordered (`select` with a permutation),
detached, saved and rewound.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

State: TypeAlias = (
    Any  # Tensor | tuple[State, ...] | list[State] | dict[str, State] | None: mypy cannot follow the recursion
)


@dataclass(frozen=True, eq=False)
class Shared:
    """Branch whose row b is row `rows[b]` of `values`, so that several rows share memory.

    Functions of a state see only `rows`, as a leaf; the model that reads the branch interprets it.

    Args:
        rows: (B,) integers in [0, S).
        values: a state of S rows.
    """

    rows: Tensor
    values: "State"


class Memory(dict[str, "State"]):
    """A branch that no step changes, such as the memory of an encoder: searches hold it once for the forks of a row."""


def map_state(function: Callable[[Tensor], Tensor], state: State) -> State:
    """Apply `function` to every tensor of `state`, keeping its structure.

    >>> map_state(lambda h: h + 1, {"h": torch.zeros(2), "c": None})
    {'h': tensor([1., 1.]), 'c': None}
    """
    match state:
        case None:
            return None
        case Tensor():
            return function(state)
        case tuple():
            return tuple(map_state(function, branch) for branch in state)
        case list():
            return [map_state(function, branch) for branch in state]
        case dict():
            mapped = {name: map_state(function, branch) for name, branch in state.items()}
            return Memory(mapped) if isinstance(state, Memory) else mapped
        case Shared():
            return Shared(function(state.rows), state.values)
    raise TypeError(f"state: expected a tree of tensors, tuples, lists, dicts and None, got {type(state).__name__}")


def select(state: State, rows: Tensor) -> State:
    """Return the state of the given batch `rows`, in that order; a repeated row is a fork.

    rows: (B',) integers, each in [0, B).

    >>> select((torch.tensor([[1.0], [2.0]]),), torch.tensor([1, 0, 1]))
    (tensor([[2.],
            [1.],
            [2.]]),)
    """
    return map_state(lambda leaf: leaf.index_select(0, rows.to(leaf.device)), state)


def share(branch: State) -> Shared:
    """Prepare a branch for forks without copies; drop unused values once they are the majority.

    >>> forked = select(share(torch.tensor([[1.0], [2.0]])), torch.tensor([1, 1, 1]))
    >>> forked.rows, share(forked).rows, share(forked).values
    (tensor([1, 1, 1]), tensor([0, 0, 0]), tensor([[2.]]))
    """
    if not isinstance(branch, Shared):
        return Shared(torch.arange(count_rows(branch), device=leaves(branch)[0].device), branch)
    used, rows = branch.rows.unique(return_inverse=True)
    if 2 * len(used) > count_rows(branch.values):
        return branch
    return Shared(rows, select(branch.values, used))


def share_memories(state: State) -> State:
    """Share every `Memory` of a state; a search calls this before it forks rows, and when rows end."""
    match state:
        case Memory() | Shared():
            return share(state)
        case tuple():
            return tuple(map(share_memories, state))
        case list():
            return [share_memories(branch) for branch in state]
        case dict():
            return {name: share_memories(branch) for name, branch in state.items()}
    return state


def expand(state: State, rows: int) -> State:
    """Repeat a state of one row `rows` times, without copying; a state of that many rows is unchanged.

    >>> expand({"h": torch.zeros(1, 3), "c": None}, 2)["h"].shape
    torch.Size([2, 3])
    """
    return map_state(lambda leaf: leaf.expand(rows, *leaf.shape[1:]), state)


def concatenate(states: Sequence[State]) -> State:
    """Join states of one structure along the batch.

    Leaves of unequal size, such as caches, are padded with zeros before their values.
    `chainrule.layers.CausalAttention` recognises empty slots by its counter.

    >>> concatenate([{"h": torch.ones(1, 2), "c": None}, {"h": torch.ones(1, 3), "c": None}])
    {'c': None, 'h': tensor([[0., 1., 1.],
            [1., 1., 1.]])}
    """
    flat = [flatten(expand(state, count_rows(state))) for state in states]
    tensors, skeleton = flat[0]
    if any(other != skeleton for _, other in flat):
        raise ValueError("states: expected states of one structure, as one model makes them")

    def joined(name: str) -> Tensor:
        parts = [leaves_of_state[name] for leaves_of_state, _ in flat]
        sizes = [max(axis) for axis in zip(*(part.shape[1:] for part in parts), strict=True)]
        return torch.cat([_filled(part, sizes) for part in parts])

    return unflatten({name: joined(name) for name in tensors}, skeleton)


def _filled(leaf: Tensor, sizes: Sequence[int]) -> Tensor:
    """Pad a leaf (B, ...) with zeros before its values, up to `sizes` after B."""
    missing = [size - present for size, present in zip(sizes, leaf.shape[1:], strict=True)]
    return torch.nn.functional.pad(leaf, [n for size in reversed(missing) for n in (size, 0)]) if any(missing) else leaf


def leaves(state: State) -> list[Tensor]:
    """List the tensors of a state, in order.

    >>> [leaf.shape for leaf in leaves((torch.zeros(2, 3), None, [torch.zeros(2)]))]
    [torch.Size([2, 3]), torch.Size([2])]
    """
    tensors: list[Tensor] = []

    def note(leaf: Tensor) -> Tensor:
        tensors.append(leaf)
        return leaf

    map_state(note, state)
    return tensors


def count_rows(state: State) -> int:
    """Return the batch size shared by all leaves (one-row leaves broadcast)."""
    shapes = [tuple(leaf.shape) for leaf in leaves(state)]
    several = {shape[0] for shape in shapes if shape} - {1}
    if not shapes or () in shapes or len(several) > 1:
        raise ValueError(f"expected tensors with one row for each sequence, or one for all, got shapes {shapes}")
    return several.pop() if several else 1


def detach(state: State) -> State:
    """Keep the values and drop the gradients: the boundary of truncated backpropagation through time."""
    return map_state(Tensor.detach, state)


def flatten(state: State, name: str = "state") -> tuple[dict[str, Tensor], Any]:
    """Split a state into named tensors and a JSON-able skeleton in which every tensor is replaced by its name.

    >>> tensors, skeleton = flatten((torch.zeros(1), None))
    >>> skeleton
    {'tuple': ['state.0', None]}
    """
    match state:
        case None:
            return {}, None
        case Tensor():
            return {name: state}, name
        case tuple() | list():
            parts = [flatten(branch, f"{name}.{index}") for index, branch in enumerate(state)]
            tensors = {key: leaf for leaves, _ in parts for key, leaf in leaves.items()}
            return tensors, {type(state).__name__: [skeleton for _, skeleton in parts]}
        case dict():
            # Use indices, because keys may contain dots, in an order that survives JSON; the skeleton stores the keys.
            named = {key: flatten(state[key], f"{name}.{index}") for index, key in enumerate(sorted(state))}
            tensors = {key: leaf for leaves, _ in named.values() for key, leaf in leaves.items()}
            kind = "memory" if isinstance(state, Memory) else "dict"
            return tensors, {kind: {key: skeleton for key, (_, skeleton) in named.items()}}
        case Shared():
            tensors, skeleton = flatten(state.values, f"{name}.values")
            return {f"{name}.rows": state.rows, **tensors}, {"shared": [f"{name}.rows", skeleton]}
    raise TypeError(f"state: expected a tree of tensors, tuples, lists, dicts and None, got {type(state).__name__}")


def unflatten(tensors: dict[str, Tensor], skeleton: Any) -> State:
    """Rebuild the state that `flatten` split."""
    match skeleton:
        case None:
            return None
        case str():
            return tensors[skeleton]
        case {"tuple": branches}:
            return tuple(unflatten(tensors, branch) for branch in branches)
        case {"list": branches}:
            return [unflatten(tensors, branch) for branch in branches]
        case {"dict": branches}:
            return {name: unflatten(tensors, branch) for name, branch in branches.items()}
        case {"memory": branches}:
            return Memory({name: unflatten(tensors, branch) for name, branch in branches.items()})
        case {"shared": [rows, values]}:
            return Shared(tensors[rows], unflatten(tensors, values))
    raise ValueError(f"state skeleton: expected a name, null, or a tuple, list or dict of them, got {skeleton!r}")


def save_state(state: State, path: str | Path) -> None:
    """Write a state as safetensors, with its structure in the metadata."""
    import json

    from safetensors.torch import save_file

    tensors, skeleton = flatten(state)
    # Copy, because safetensors rejects tensors that share memory, as branches of a state may.
    tensors = {name: leaf.clone(memory_format=torch.contiguous_format) for name, leaf in tensors.items()}
    save_file(tensors, path, {"skeleton": json.dumps(skeleton)})


def load_state(path: str | Path, device: str | torch.device = "cpu") -> State:
    """Read a state written by `save_state`."""
    import json

    from safetensors import safe_open

    with safe_open(path, framework="pt", device=str(device)) as file:
        names = file.keys()
        tensors = {name: file.get_tensor(name) for name in names}
        return unflatten(tensors, json.loads(file.metadata()["skeleton"]))
