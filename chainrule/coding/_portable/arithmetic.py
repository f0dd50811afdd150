"""Portable arithmetic: the same bits on every processor, with any number of threads."""

import copy
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from chainrule.coding._portable import functions

DIGITS = 53  # of float64
_CACHED, _FEWEST = 256, 1024  # maximum number of matrices cached as integers, and minimum size of each
_LEAST_POWER = -1000  # 2 to its negative is still finite
Whole = tuple[Tensor, int]
# Operations that copy, compare or count, or whose results IEEE 754 defines to the last bit.
_EXACT = """
_local_scalar_dense _reshape_alias _to_copy _unsafe_view abs alias all amax amin any argmax argmin argsort
as_strided cat ceil clamp clamp_max clamp_min clone constant_pad_nd copy detach diagonal div embedding
empty_like eq expand fill flip floor full_like gather ge gt index index_put index_select isfinite isinf isnan
le lift_fresh logical_and logical_not logical_or lt masked_fill max maximum min minimum mul
nan_to_num ne neg new_empty new_full new_ones new_zeros ones_like permute reciprocal relu repeat roll round
scatter select sign slice sort split split_with_sizes sqrt squeeze stack t topk transpose tril triu unbind
unfold unsqueeze view view_as_complex view_as_real where zero zeros_like
"""
_ARITHMETIC = {"abs", "div", "mul", "reciprocal", "sqrt"}  # not exact for complex numbers: several roundings
_MAKERS = {"linspace", "logspace"}  # round several times, in some order
_OWN = ("asinh", "cos", "exp", "expm1", "log", "log1p", "sigmoid", "sin", "tanh")


class ExactSums:
    r"""Exact sums: terms are rounded to multiples of a power of two, with so few digits that float64 holds every sum.

    .. math:: \sum_{k=1}^{K} a_k b_k: \qquad a_k \approx 2^i A_k, \quad b_k \approx 2^j B_k, \quad
        K \max_k |A_k| \max_k |B_k| \le 2^{53}

    All partial sums of the integers :math:`A_k B_k` are then exact, and a vendor's matrix product gives the same bits
    in any order of operations. The factors share the digits: for K = 512 each factor has 22 digits below the largest
    number of its matrix, similar to float32.
    """

    def __init__(self) -> None:
        self._cache: OrderedDict[Any, tuple[Tensor, Whole]] = OrderedDict()

    def product(self, multiply: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, terms: int) -> Tensor:
        """Apply a bilinear function `multiply` with at most `terms` terms in each sum."""
        digits = DIGITS - max(terms - 1, 1).bit_length()
        (a_whole, a_power), (b_whole, b_power) = self._whole(a, digits // 2), self._whole(b, digits - digits // 2)
        return multiply(a_whole, b_whole).mul_(2.0 ** (a_power + b_power)).to(a.dtype)

    def total(self, x: Tensor, dim: Any = None, *, keepdim: bool = False) -> Tensor:
        """Sum over some axes, all by default."""
        axes = list(range(x.dim())) if dim is None or dim == [] else dim
        whole, power = _rounded(x, DIGITS - max(x.numel() - 1, 1).bit_length())
        return whole.sum(axes, keepdim=keepdim).mul_(2.0**power).to(x.dtype)

    def running(self, x: Tensor, dim: int) -> Tensor:
        """Compute cumulative sums along an axis."""
        whole, power = _rounded(x, DIGITS - max(x.shape[dim] - 1, 1).bit_length())
        return whole.cumsum(dim).mul_(2.0**power).to(x.dtype)

    def _whole(self, x: Tensor, digits: int) -> Whole:
        """Round a matrix to whole numbers, with a cache for weights that return at every step."""
        if x.numel() < _FEWEST:
            return _rounded(x, digits)
        # The cache keeps the tensor alive, so no other can reuse its address; writing to it changes its version.
        key = (x.data_ptr(), x._version, x.dtype, x.shape, x.stride(), digits)
        if key not in self._cache:
            self._cache[key] = x, _rounded(x, digits)
            if len(self._cache) > _CACHED:
                self._cache.popitem(last=False)
        self._cache.move_to_end(key)
        return self._cache[key][1]


def _rounded(x: Tensor, digits: int) -> Whole:
    """Return whole numbers below 2^digits, and the power of two of their unit."""
    largest = float(x.abs().max()) if x.numel() else 0.0
    power = max(math.frexp(largest)[1] - digits, _LEAST_POWER) if 0 < largest < math.inf else 0
    return (x.double() * 2.0**-power).round_(), power


def portable_copy(model: torch.nn.Module) -> Any:
    """Copy a model in float64 and evaluation mode, for `PortableArithmetic`."""
    return copy.deepcopy(model).double().eval()


class PortableArithmetic(TorchDispatchMode):
    """Mode in which torch computes the same bits on every processor.

    `ExactSums` computes sums and matrix products, independently of the order of additions, and
    `chainrule.coding._portable.functions` computes exp, log and related functions. IEEE 754 must define all other
    operations; the mode raises ValueError for operations that have no such form.

    It requires a model in float64, on the CPU, without gradients; see `portable_copy`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._sums = ExactSums()
        self._exact = frozenset(_EXACT.split())
        self._own = {name: getattr(functions, name) for name in _OWN}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func.overloadpacket.__name__
        plain = name if name.startswith("_") else name.removesuffix("_")
        if name in _MAKERS or (name == "arange" and any(isinstance(arg, float) for arg in args)):
            raise ValueError(f"the model has no portable form: the last bits of {func} depend on the processor")
        kinds = set(_kinds((*args, *kwargs.values())))
        if not kinds or (plain in self._exact and (kinds == {"real"} or plain not in _ARITHMETIC)):
            return func(*args, **kwargs)
        replaced: Callable[..., Any] | None = self._own.get(plain) or getattr(self, f"_{plain.strip('_')}", None)
        if replaced is None:
            raise ValueError(f"the model has no portable form: the last bits of {func} depend on the processor")
        out = kwargs.pop("out", args[0] if plain != name else None)
        result = replaced(*args, **kwargs)
        return result if out is None else out.copy_(result)

    # Names and arguments of the methods below follow torch's operations.

    def _polar(self, size: Tensor, angle: Tensor) -> Tensor:
        return torch.complex(size * functions.cos(angle), size * functions.sin(angle))

    def _mul(self, x: Tensor, y: Tensor) -> Tensor:
        """Multiply complex numbers."""
        real, imaginary = x.real * y.real - x.imag * y.imag, x.real * y.imag + x.imag * y.real
        return torch.complex(real, imaginary)

    def _add(self, x: Any, y: Any, *, alpha: float = 1) -> Tensor:
        return torch.add(x, y if alpha == 1 else y * alpha)

    def _sub(self, x: Any, y: Any, *, alpha: float = 1) -> Tensor:
        return torch.sub(x, y if alpha == 1 else y * alpha)

    def _rsub(self, x: Tensor, y: Any, alpha: float = 1) -> Tensor:
        return self._sub(y, x, alpha=alpha)

    def _exp2(self, x: Tensor) -> Tensor:
        return functions.exp(x * math.log(2))

    def _addcmul(self, x: Tensor, a: Tensor, b: Tensor, *, value: float = 1) -> Tensor:
        return x + a * b * value

    def _lerp(self, x: Tensor, y: Tensor, weight: Any) -> Tensor:
        return x + (y - x) * weight

    def _pow(self, x: Any, y: Any) -> Tensor:
        if isinstance(y, int | float) and y == 2:
            return torch.mul(x, x)
        device = x.device if isinstance(x, Tensor) else y.device
        x, y = torch.as_tensor(x, device=device).double(), torch.as_tensor(y, dtype=torch.float64, device=device)
        size = functions.exp(y * functions.log(x.abs()))
        signed = torch.where(y % 2 == 1, -size, torch.where(y == y.floor(), size, torch.nan))
        return torch.where(x < 0, signed, size).masked_fill(y == 0, 1.0)

    def _rsqrt(self, x: Tensor) -> Tensor:
        return 1 / x.sqrt()

    def _softplus(self, x: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
        return functions.softplus(x * beta) / beta

    def _silu(self, x: Tensor) -> Tensor:
        return x * functions.sigmoid(x)

    def _elu(self, x: Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Tensor:
        return torch.where(x > 0, x, functions.expm1(x * input_scale) * alpha) * scale

    def _glu(self, x: Tensor, dim: int = -1) -> Tensor:
        value, opening = x.chunk(2, dim)
        return value * functions.sigmoid(opening)

    def _gelu(self, x: Tensor, *, approximate: str = "none") -> Tensor:
        if approximate == "tanh":
            return x * functions.sigmoid((x + x * x * x * 0.044715) * (2 * math.sqrt(2 / math.pi)))
        return x * self._special_ndtr(x)

    def _special_ndtr(self, x: Tensor) -> Tensor:
        return functions.exp(self._special_log_ndtr(x))

    def _special_log_ndtr(self, x: Tensor) -> Tensor:
        return functions.log_erfc(x * -math.sqrt(0.5)) - math.log(2)

    def _log_sigmoid_forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return -functions.softplus(-x), x.new_empty(0)

    def _logaddexp(self, x: Tensor, y: Tensor) -> Tensor:
        return self._logsumexp(torch.stack(torch.broadcast_tensors(x, y)), 0)

    def _logsumexp(self, x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
        if 0 in x.shape:
            return torch.logsumexp(x, dim, keepdim)  # −inf
        most = x.amax(dim, keepdim=True)
        most = most.masked_fill(most.isinf(), 0)
        result = functions.log(self._sum(functions.exp(x - most), dim, True)) + most
        return result if keepdim else result.sum(dim)  # over axes of length 1, which drops them

    def _softmax(self, x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
        powers = functions.exp(x - x.amax(dim, keepdim=True))
        return powers / self._sum(powers, dim, True)

    def _log_softmax(self, x: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
        return x - self._logsumexp(x, dim, keepdim=True)

    def _sum(self, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        return self._sums.total(x, dim, keepdim=keepdim)

    def _embedding_bag(
        self,
        weight: Tensor,
        indices: Tensor,
        offsets: Tensor,
        scale_grad_by_freq: bool = False,
        mode: int = 0,
        sparse: bool = False,
        per_sample_weights: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int = -1,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Sum bags of equal size."""
        size = len(indices) // max(len(offsets), 1)
        even = torch.equal(offsets, size * torch.arange(len(offsets), device=offsets.device))
        if mode != 0 or per_sample_weights is not None or include_last_offset or padding_idx >= 0 or not even:
            raise ValueError(
                "the model has no portable form: embedding_bag is portable only as the sum of bags of equal size"
            )
        none = offsets.new_empty(0)
        return self._sum(weight[indices.view(-1, size)], 1), none, none, none

    _embedding_bag_forward_only = _embedding_bag

    def _mean(self, x: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        result = self._sum(x, dim, keepdim)
        return result * result.numel() / x.numel()

    def _index_add(self, x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
        """Support one axis only, where the CPU adds the numbers sequentially."""
        if x.dim() != 1:
            raise ValueError("the model has no portable form: index_add is portable only for one axis")
        return torch.index_add(x, dim, index, source, alpha=alpha)

    def _cumsum(self, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        return self._sums.running(x, dim)

    def _linalg_vector_norm(
        self, x: Tensor, order: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
    ) -> Tensor:
        assert order == 2
        return self._sum(x * x, dim, keepdim).sqrt()

    def _native_layer_norm(
        self, x: Tensor, shape: Any, weight: Tensor | None, bias: Tensor | None, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        result, mean, scale = self._standard(x, list(range(-len(shape), 0)), eps)
        result = result if weight is None else result * weight
        return result if bias is None else result + bias, mean, scale

    def _native_group_norm(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, n: int, c: int, area: int, groups: int, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        result, mean, scale = self._standard(x.reshape(n, groups, -1), [-1], eps)
        result, each = result.view(x.shape), (1, c, *[1] * (x.dim() - 2))
        result = result if weight is None else result * weight.view(each)
        return result if bias is None else result + bias.view(each), mean, scale

    def _standard(self, x: Tensor, axes: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
        mean = self._mean(x, axes, True)
        scale = 1 / (self._mean((x - mean) * (x - mean), axes, True) + eps).sqrt()
        return (x - mean) * scale, mean, scale

    def _fused_rms_norm(self, x: Tensor, shape: Any, weight: Tensor | None, eps: float | None) -> tuple[Tensor, Tensor]:
        least = torch.finfo(x.dtype).eps if eps is None else eps
        scale = 1 / (self._mean(x * x, list(range(-len(shape), 0)), True) + least).sqrt()
        return x * scale if weight is None else x * scale * weight, scale

    def _scaled_dot_product_flash_attention_for_cpu(
        self, queries: Tensor, keys: Tensor, values: Tensor, dropout: float = 0.0, is_causal: bool = False, **more: Any
    ) -> tuple[Tensor, None]:
        mask, scale = more.get("attn_mask"), more.get("scale")
        scores = self._mm(queries, keys.transpose(-2, -1)) * (queries.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf)
        if mask is not None:
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        return self._mm(self._softmax(scores, -1), values), None

    def _mm(self, a: Tensor, b: Tensor) -> Tensor:
        return self._sums.product(torch.matmul, a, b, a.shape[-1])

    _bmm = _mv = _dot = _mm

    def _addmm(self, x: Tensor, a: Tensor, b: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        return x * beta + self._mm(a, b) * alpha

    _baddbmm = _addmv = _addmm

    def _convolution(self, x: Tensor, weight: Tensor, bias: Tensor | None, *settings: Any) -> Tensor:
        def convolve(x: Tensor, weight: Tensor) -> Tensor:
            return torch.ops.aten.convolution(x, weight, None, *settings)

        result = self._sums.product(convolve, x, weight, weight.numel())
        return result if bias is None else result + bias.view(-1, *[1] * (weight.dim() - 2))


def _kinds(arguments: tuple[Any, ...]) -> Iterator[str]:
    """Yield the kinds of floating-point numbers among arguments."""
    for argument in arguments:
        if isinstance(argument, list | tuple):
            yield from _kinds(tuple(argument))
        elif isinstance(argument, Tensor) and (argument.is_floating_point() or argument.is_complex()):
            yield "complex" if argument.is_complex() else "real"
