"""Optimisers (AdamW and Muon), the learning-rate schedule, and the optimiser's moments as named tensors."""

import inspect
import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist
from torch import Tensor, nn, optim

from chainrule.devices import multiply_dtype
from chainrule.layers import MultiHeadAttention, Recurrent
from chainrule.layers._attention import Attention
from chainrule.layers._dilated_stack import CausalConv1d, DilatedStack
from chainrule.layers._masked_conv2d import MaskedConv2d
from chainrule.layers._masked_linear import MaskedLinear
from chainrule.layers._multi_head_attention import WindowAttention
from chainrule.layers._transformer_stack import GATED, FeedForward
from chainrule.option_error import OptionError
from chainrule.training._parallel import divided_as, is_divided, part_of, whole_of


def learning_rate(progress: float, peak: float, warmup: float, floor: float = 0.01) -> float:
    r"""Return the learning rate: linear warm-up, then half a cosine (Loshchilov and Hutter 2017, SGDR).

    .. math::
        \eta(p) = \eta_{max} \begin{cases} p / w & p < w \\
        f + (1 - f) \frac{1 + \cos(\pi (p - w)/(1 - w))}{2} & p \ge w \end{cases}

    The schedule depends only on a fraction, of steps or of seconds, so an extended run resumes at its position in the
    longer schedule.

    Args:
        progress: fraction of the run done at the end of the step, in [0, 1].
        peak: maximum learning rate.
        warmup: fraction of the run for the warm-up, in [0, 1).
        floor: final learning rate as a fraction of the peak.

    >>> [round(learning_rate(p, 1.0, 0.2), 3) for p in (0.1, 0.2, 0.6, 1.0)]
    [0.5, 1.0, 0.505, 0.01]
    """
    if progress < warmup:
        return peak * progress / warmup
    fall = (min(progress, 1.0) - warmup) / (1 - warmup)
    return peak * (floor + (1 - floor) * (1 + math.cos(math.pi * fall)) / 2)


class AdamW(optim.AdamW):
    """torch's AdamW without the decorators for torch.compile, whose import takes a second at the first step."""

    add_param_group = inspect.unwrap(optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(optim.Optimizer.zero_grad)
    step = torch.no_grad()(inspect.unwrap(optim.AdamW.step))


Kind = Literal["adamw", "muon"]
BETAS = (0.9, 0.99)  # shorter memory of squares than Adam's 0.999, for runs of a few thousand steps


def make_optimiser(model: nn.Module, learning_rate: float, weight_decay: float, kind: Kind = "adamw") -> AdamW:
    """Build AdamW (Loshchilov and Hutter 2019), or Muon for hidden matrices; vectors such as biases do not decay."""
    if kind not in get_args(Kind):
        raise ValueError(f"kind: expected adamw or muon, got {kind!r}")
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not trainable:
        raise ValueError("model: expected parameters that require a gradient, got none: there is nothing to train")
    matrices = hidden_matrices(model) if kind == "muon" else {}
    if kind == "muon" and not matrices:
        raise OptionError("optimiser", "expected adamw for a model without hidden layers, got muon")
    rest = [parameter for parameter in trainable if parameter not in matrices]
    parts = [[weight for weight in rest if weight.dim() > 1], [weight for weight in rest if weight.dim() <= 1]]
    groups = [{"params": part} for part in parts if part]
    fused = all(parameter.device.type in ("cpu", "cuda") for parameter in trainable)
    if matrices:
        optimiser: AdamW = Muon(groups, matrices, betas=BETAS, fused=fused)
    else:
        optimiser = AdamW(groups, betas=BETAS, fused=fused)
    restart(optimiser, learning_rate, weight_decay)
    return optimiser


def restart(optimiser: optim.Optimizer, learning_rate: float, weight_decay: float) -> None:
    """Let an optimiser of `make_optimiser` forget its moments, and set its learning rate and weight decay."""
    optimiser.state.clear()
    for group in optimiser.param_groups:
        decays = group["params"][0].dim() > 1
        group |= {"lr": learning_rate, "weight_decay": weight_decay if decays else 0.0}


def clip_gradient(model: nn.Module, norm: float | None) -> Tensor:
    r"""Scale the gradient to :math:`g \min(1, \theta / \lVert g \rVert)`, and return the norm before scaling, ()."""
    most = float("inf") if norm is None else norm
    divided = [weight.grad for weight in model.parameters() if weight.grad is not None and is_divided(weight.grad)]
    if not divided:
        return nn.utils.clip_grad_norm_(model.parameters(), most)
    parts = [part_of(gradient) for gradient in divided]
    squares = nn.utils.get_total_norm(parts).square()
    dist.all_reduce(squares)
    total = squares.sqrt()
    scale = (most / (total + 1e-6)).clamp(max=1.0)  # as clip_grad_norm_ does
    for part in parts:
        part.mul_(scale)
    return total


def moments(optimiser: optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Return the optimiser's moments by name: `exp_avg.WEIGHT`, `exp_avg_sq.WEIGHT` and `step.WEIGHT`, or Muon's."""
    return {
        f"{kind}.{name}": value
        for name, parameter in model.named_parameters()
        for kind, value in optimiser.state.get(parameter, {}).items()
    }


def restore_moments(optimiser: optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Restore the result of `moments`; weights without an entry start without moments."""
    optimiser.state.clear()
    for name, parameter in model.named_parameters():
        of_muon = isinstance(optimiser, Muon) and parameter in optimiser.matrices
        kinds = _KINDS_OF_MUON if of_muon else _KINDS
        saved = {kind: tensors[f"{kind}.{name}"] for kind in kinds if f"{kind}.{name}" in tensors}
        for kind, value in saved.items():
            expected = () if kind == "step" else tuple(parameter.shape)
            if tuple(value.shape) != expected:
                raise ValueError(
                    f"checkpoint: expected {kind} of {name} in shape {expected}, "
                    f"got {tuple(value.shape)}: it belongs to another model"
                )
        if saved and len(saved) < len(kinds):
            raise ValueError(f"checkpoint: expected {', '.join(kinds)} of {name}, got {', '.join(saved)}: damaged")
        if saved:
            optimiser.state[parameter] = {
                kind: value.to(parameter.device, torch.float32 if kind == "step" else parameter.dtype)
                for kind, value in saved.items()
            }
            if of_muon:  # Muon's step counter stays on the CPU
                optimiser.state[parameter]["step"] = saved["step"].to("cpu", torch.float32)


_KINDS = ("step", "exp_avg", "exp_avg_sq")
_KINDS_OF_MUON = ("step", "momentum", "direction")


MOMENTUM = 0.95
EVERY = 2  # steps between new directions: as good as 1 (benchmarks/LOG.md) at half the cost
ITERATIONS = 3  # as good as 5 (benchmarks/LOG.md) at three fifths of the cost
_A, _B, _C = 3.4445, -4.775, 2.0315  # by Jordan et al.: steepest at 0 while singular values stay near 1


class Muon(AdamW):
    r"""Muon: momentum with orthogonalised directions (Jordan et al. 2024), at AdamW's learning rate.

    .. math::
        M \leftarrow \mu M + (1 - \mu) G, \quad O \leftarrow \mathrm{NS}((1 - \mu) G + \mu M), \quad
        W \leftarrow (1 - \eta \lambda) W - 0.2 \sqrt{\max(r, c)}\, \eta\, O

    for each (r, c) block of a hidden matrix: a gate of a recurrent layer, the queries, keys or values of attention, one
    half of a gated layer; see `hidden_matrices`.
    O is updated every second step, because M changes slowly. The factor :math:`0.2 \sqrt{\max(r, c)}` gives O the size
    of a step of AdamW (Liu et al. 2025), so that learning rate and weight decay mean the same for all weights. AdamW
    updates the weights that are not hidden matrices.
    """

    # Processes that train one model on processors share the work of large blocks: each has this number of so many.
    rank, world = 0, 1

    def __init__(self, groups: Iterable[dict[str, Any]], matrices: dict[Tensor, list[int]], **options: Any):
        self.matrices = matrices
        super().__init__([*groups, {"params": list(matrices)}], **options)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all weights that have a gradient."""
        if closure is not None:
            raise ValueError("closure: Muon takes none: compute the gradients before step()")
        gradients = {weight: weight.grad for weight in self.matrices if weight.grad is not None}
        for weight in gradients:  # AdamW skips weights without a gradient
            weight.grad = None
        super().step()
        due: _Blocks = {}
        for weight, gradient in gradients.items():
            weight.grad = gradient
            state = self.state[weight]
            if not state:
                state |= {"step": torch.tensor(0.0, device="cpu"), "momentum": torch.zeros_like(weight)}
                state["direction"] = torch.zeros_like(weight, memory_format=torch.contiguous_format)
            momentum = state["momentum"].lerp_(gradient, 1 - MOMENTUM)
            if int(state["step"]) % EVERY == 0:
                ahead = whole_of(gradient.lerp(momentum, MOMENTUM))
                # Of a divided weight all processes compute the same direction, one at a time, and keep their parts.
                divided = is_divided(weight)
                direction = torch.empty_like(ahead) if divided else state["direction"]
                rows = self.matrices[weight]
                blocks = ahead.reshape(sum(rows), -1).split(rows), direction.view(sum(rows), -1).split(rows)
                for pair in zip(*blocks, strict=True):
                    due.setdefault(tuple(pair[0].shape), []).append(pair)
                if divided:
                    _set_directions(due)
                    due.clear()
                    part_of(state["direction"]).copy_(part_of(divided_as(direction, weight)))
            state["step"] += 1
        large = _large(due) if self.world > 1 else {}
        _set_directions({shape: pairs for shape, pairs in due.items() if shape not in large})
        if large:
            _share_directions(large, self.rank, self.world)
        rate, decay = self.param_groups[-1]["lr"], self.param_groups[-1]["weight_decay"]
        for weight in gradients:
            weight.mul_(1 - rate * decay).sub_(self.state[weight]["direction"], alpha=rate)


_Blocks = dict[tuple[int, ...], list[tuple[Tensor, Tensor]]]  # by shape: what is made orthogonal, and where it goes


def _set_directions(due: _Blocks) -> None:
    for shape, pairs in due.items():  # blocks of equal shape share one batched product
        orthogonal = nearly_orthogonal(torch.stack([ahead for ahead, _ in pairs])) * (0.2 * max(shape) ** 0.5)
        for (_, direction), direct in zip(pairs, orthogonal, strict=True):
            direction.copy_(direct)


LARGE = 128  # rows and columns of blocks that take longer to compute than to send


def _large(due: _Blocks) -> _Blocks:
    """Return blocks that processes on processors compute for each other: a GPU computes them faster than it sends."""
    return {shape: pairs for shape, pairs in due.items() if min(shape) >= LARGE and pairs[0][0].device.type == "cpu"}


def _share_directions(due: _Blocks, rank: int, world: int) -> None:
    """Set directions of which each process computes about as many multiply-adds, and sends them to the others."""
    parts: list[_Blocks] = [{} for _ in range(world)]
    work = [0] * world
    for shape, pairs in sorted(due.items(), key=lambda entry: -min(entry[0]) * math.prod(entry[0])):
        for pair in pairs:
            least = work.index(min(work))
            parts[least].setdefault(shape, []).append(pair)
            work[least] += min(shape) * math.prod(shape)
    _set_directions(parts[rank])
    directions = [[direction for pairs in part.values() for _, direction in pairs] for part in parts]
    sizes = [[direction.numel() for direction in part] for part in directions]
    sent = torch.zeros(max(map(sum, sizes)), dtype=next(iter(due.values()))[0][0].dtype, device="cpu")
    torch.cat([direction.flatten() for direction in directions[rank]] or [sent[:0]], out=sent[: sum(sizes[rank])])
    received = [torch.empty_like(sent) for _ in range(world)]
    dist.all_gather(received, sent)
    for part, own_sizes, content in zip(directions, sizes, received, strict=True):
        for direction, values in zip(part, content[: sum(own_sizes)].split(own_sizes), strict=True):
            direction.copy_(values.view_as(direction))


def nearly_orthogonal(matrices: Tensor, iterations: int = ITERATIONS) -> Tensor:
    r"""Return matrices (K, r, c) with the same singular vectors, and singular values close to 1.

    .. math:: X_0 = G / \lVert G \rVert_F, \qquad X_{k+1} = a X_k + (b A + c A^2) X_k, \quad A = X_k X_k^T

    The quintic Newton–Schulz iteration of Jordan et al. (2024), in bfloat16 where the device multiplies it.
    """
    tall = matrices.shape[-2] > matrices.shape[-1]
    dtype = matrices.dtype if matrices.dtype == torch.float64 else multiply_dtype("auto", matrices.device)
    x = (matrices.mT if tall else matrices).to(dtype)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=_B, alpha=_C), x, beta=_A)
    return (x.mT if tall else x).to(matrices.dtype)


_OF_PREDICTIONS = frozenset({"output", "direct"})


def hidden_matrices(model: nn.Module) -> dict[Tensor, list[int]]:
    """Return matrices and kernels that map features to features, each with the rows of its blocks.

    They belong to linear layers, convolutions, recurrences and attention. Embeddings are excluded, and so are layers
    named `output` or `direct`, which make the predictions of most models: their rows belong to symbols, labels or
    pixels. A kernel counts as the matrix of its first dimension and all others: (out, in · ...), or transposed
    (in, out · ...). Halves that gate each other are two blocks in recurrent layers, feed-forward networks, WaveNet,
    masked convolutions, and linear layers and convolutions before `torch.nn.GLU`. The input matrix of a recurrent layer
    that reads one-hot symbols is included.

    >>> from chainrule.models import RecurrentLM
    >>> model = RecurrentLM(vocab_size=5, hidden_size=8, embedding_size=4)
    >>> [(tuple(weight.shape), rows) for weight, rows in hidden_matrices(model).items()]
    [((32, 4), [8, 8, 8, 8]), ((32, 8), [8, 8, 8, 8])]
    """
    matrices: dict[Tensor, list[int]] = {}
    for name, layer in model.named_modules():  # layers precede their parts, so their blocks take precedence
        if not _OF_PREDICTIONS.isdisjoint(name.split(".")):
            continue
        for weight, rows in _blocks(layer):
            if weight.requires_grad and len(weight) > 1:
                matrices.setdefault(weight, rows)
    return matrices


def _blocks(layer: nn.Module) -> Iterator[tuple[Tensor, list[int]]]:
    if isinstance(layer, Recurrent):
        for weight in layer.parameters():
            if weight.dim() == 2:
                yield weight, [layer.hidden_size] * (len(weight) // layer.hidden_size)
    elif isinstance(layer, FeedForward) and layer.activation == GATED:
        yield layer.linear1.weight, [len(layer.linear1.weight) // 2] * 2
    elif isinstance(layer, MultiHeadAttention):
        keys = (len(layer.in_proj_weight) - layer.model_size) // 2
        yield layer.in_proj_weight, [layer.model_size, keys, keys]
    elif isinstance(layer, WindowAttention):
        yield layer.in_proj.weight, [len(layer.out_proj.weight)] * 3
    elif isinstance(layer, Attention):
        yield from ((weight, [len(weight)]) for weight in layer.parameters() if weight.dim() == 2)
    elif isinstance(layer, DilatedStack):
        yield layer.residual, [layer.residual.shape[1]] * len(layer.residual)
        yield from ((gated.weight, [len(gated.weight) // 2] * 2) for gated in layer.convolutions)
    elif isinstance(layer, nn.Sequential):
        for before, after in pairwise(layer):
            if isinstance(after, nn.GLU) and isinstance(before, nn.Linear | nn.Conv2d):
                yield before.weight, [len(before.weight) // 2] * 2
    elif isinstance(layer, MaskedConv2d):
        yield layer.weight, [len(layer.weight) // layer.parts] * layer.parts
    elif isinstance(layer, nn.Linear | nn.Conv1d | nn.Conv2d | nn.ConvTranspose2d | CausalConv1d | MaskedLinear):
        yield layer.weight, [len(layer.weight)]
