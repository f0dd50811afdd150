"""The cache of any module as a `State`, and back."""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from chainrule.modes import evaluating


def map_cache(change: Callable[[Any], Any], cache: Any) -> Any:
    """Replace every tensor and integer of a structure, always in the same order.

    Unlike a `State`, a cache may hold positions as integers, and may be an object with attributes.
    """
    match cache:
        case None | bool() | float() | str() | nn.Module():
            return cache
        case Tensor() | int():
            return change(cache)
        case tuple() if hasattr(cache, "_fields"):
            return type(cache)(*(map_cache(change, part) for part in cache))
        case tuple() | list():
            return type(cache)(map_cache(change, part) for part in cache)
    new = copy.copy(cache)
    if new is cache:  # a function or a class
        return cache
    if isinstance(cache, dict):
        new.update({name: map_cache(change, part) for name, part in cache.items()})
    if hasattr(cache, "__dict__"):
        vars(new).update({name: map_cache(change, part) for name, part in vars(cache).items()})
    return new


def parts_of(cache: Any) -> list[Any]:
    """Return the tensors and integers of a cache, in the order of `map_cache`."""
    parts: list[Any] = []

    def note(part: Any) -> Any:
        parts.append(part)
        return part

    map_cache(note, cache)
    return parts


@dataclass(frozen=True)
class CacheLayout:
    """Axis of the batch in each part of a cache; the state holds the parts batch first."""

    template: Any  # a cache whose parts are all 0
    # of each part, the axis of the batch, which may hold a multiple of it; `None` if rows share the part
    axes: tuple[int | None, ...]
    integers: tuple[bool, ...]  # of each part, whether it is an integer

    @classmethod
    def of(cls, two: Any, three: Any) -> Self:
        """Return the layout of the caches of a batch of 2 rows and of 3 rows, after equally many symbols."""
        parts = parts_of(two)
        axes = tuple(_batch_axis(*pair) for pair in zip(parts, parts_of(three), strict=True))
        return cls(map_cache(lambda _: 0, two), axes, tuple(isinstance(part, int) for part in parts))

    def pack(self, cache: Any, rows: int) -> list[Tensor]:
        """Return the state of `rows` rows that holds a cache."""
        parts = parts_of(cache)
        if len(parts) != len(self.axes):
            raise ValueError(f"cache: expected {len(self.axes)} tensors, as after the first symbols, got {len(parts)}")
        return [_batch_first(part, axis, rows) for part, axis in zip(parts, self.axes, strict=True)]

    def unpack(self, state: list[Tensor]) -> Any:
        """Return a cache that the module may write into: it shares no memory with the state."""
        parts = iter(
            [_as_it_was(*part) for part in zip(state, self.axes, self.integers, strict=True)],
        )
        return map_cache(lambda _: next(parts), self.template)


def _batch_axis(two: Tensor | int, three: Tensor | int) -> int | None:
    if isinstance(two, int) or isinstance(three, int):
        return None
    pairs = enumerate(zip(two.shape, three.shape, strict=True))
    return next((axis for axis, (left, right) in pairs if left != right), None)


def _batch_first(part: Tensor | int, axis: int | None, rows: int) -> Tensor:
    if axis is None:
        shared = torch.as_tensor(part)
        return shared.expand(rows, *shared.shape)
    assert isinstance(part, Tensor)
    return part.unflatten(axis, (rows, part.shape[axis] // rows)).movedim(axis, 0)  # (B*H, ...) -> (B, H, ...)


def _as_it_was(part: Tensor, axis: int | None, integer: bool) -> Tensor | int:
    if integer:
        return int(part[0])
    if axis is None:
        return part[0].clone()
    return part.movedim(0, axis).flatten(axis, axis + 1).clone(memory_format=torch.contiguous_format)


CacheStep = Callable[[nn.Module, Tensor, Any], tuple[Tensor, Any]]

# Arguments of `forward` that take the cache which the last call returned, in Hugging Face's modules and in others.
CACHES: tuple[str, ...] = ("past_key_values", "cache_params", "kv_cache", "kv_caches", "cache", "caches", "past_kv")
CACHES += ("past", "layer_past", "mems", "carry", "hidden", "hidden_state", "hx", "h", "hc", "state", "states")
CACHES += ("prev_state", "initial_state")


@dataclass(frozen=True)
class ModuleCall:
    """Arguments that a module takes besides the symbols, and the places of logits and cache in its answer."""

    vocab_size: int  # V; 0 until it is known
    length: int | None  # symbols that it must be given, fewer are padded; `None` if it takes any number
    arguments: frozenset[str]  # names of the arguments of `forward`
    required: str = ""  # name of a cache that has no default, and is `None` at first
    with_targets: bool = False  # whether it returns all logits only when it is given `targets`, as nanoGPT does
    cache_name: str = ""  # argument of `forward` that takes a cache; empty without one
    step: CacheStep | None = None  # reads one symbol more, instead of `forward`
    layout: CacheLayout | None = None  # of its cache; `None` without one
    one_by_one: bool = False  # whether a cache takes one symbol at a time

    @classmethod
    def of(cls, module: nn.Module, length: int | None, *, cache: bool, step: CacheStep | None) -> Self:
        """Find out by calling the module on a few symbols, in evaluation mode."""
        arguments = inspect.signature(module.forward).parameters
        cache_name = next((name for name in CACHES if name in arguments), "")
        required = cache_name if cache_name and arguments[cache_name].default is inspect.Parameter.empty else ""
        call = cls(0, length, frozenset(arguments), required)
        with torch.no_grad(), evaluating(module):
            symbols = _zeros(module, 3, length or 2)
            logits = call._tried(module, symbols)
            if logits.shape[1:2] == (1,) and "targets" in arguments:
                call = replace(call, with_targets=True)
                logits = call._tried(module, symbols)
            shape = tuple(logits.shape)
            if len(shape) != 3 or shape[:2] != symbols.shape:
                raise ValueError(
                    f"module: expected logits (B, T, V) for every one of (B, T) = {tuple(symbols.shape)} symbols, "
                    f"got shape {shape}: wrap it in a module that returns them"
                )
            call = replace(call, vocab_size=shape[2])
            if cache or step is not None:
                call = replace(call, cache_name="" if step else cache_name, step=step)._with_layout(module)
        return call

    def logits(self, module: nn.Module, symbols: Tensor, real: Tensor | None = None) -> Tensor:
        """Compute (B, T, V) for (B, T) symbols, some of them padding, in one pass without a cache."""
        missing = 0 if self.length is None else self.length - symbols.shape[1]
        if missing > 0:  # on the right, where a causal module does not see it
            symbols = F.pad(symbols, (0, missing))
            real = None if real is None else F.pad(real, (0, missing))
        options: dict[str, Any] = {"targets": symbols} if self.with_targets else {}
        if "use_cache" in self.arguments:
            options["use_cache"] = False
        options |= self._padding(symbols, real)
        logits = _logits_of(module(symbols, **self._empty(), **options))
        if real is not None and logits.dim() == 3:  # a module that reads no padding may end with the longest row
            logits = F.pad(logits, (0, 0, 0, max(symbols.shape[1] - logits.shape[1], 0)))
        self._check(logits, symbols)
        return logits[:, :-missing] if missing > 0 else logits

    def _check(self, logits: Tensor, symbols: Tensor) -> None:
        expected = (*symbols.shape, self.vocab_size)
        if self.vocab_size and tuple(logits.shape) != expected:
            raise ValueError(f"module: expected logits of shape {expected}, got {tuple(logits.shape)}")

    def _padding(self, symbols: Tensor, real: Tensor | None = None) -> dict[str, Tensor]:
        """Arguments that say what is padding; where nothing is, `lengths` alone, which may have no default."""
        arguments = {"lengths": torch.full_like(symbols[:, 0], symbols.shape[1]) if real is None else real.sum(1)}
        if real is not None:
            arguments |= {"attention_mask": real.long(), "position_ids": (real.long().cumsum(1) - 1).clamp_min(0)}
            arguments |= {"key_padding_mask": ~real, "src_key_padding_mask": ~real}
        return {name: value for name, value in arguments.items() if name in self.arguments}

    @property
    def takes_mask(self) -> bool:
        """True if `forward` takes a mask of padding on either side, as in Hugging Face or in torch."""
        return not self.arguments.isdisjoint(("attention_mask", "key_padding_mask", "src_key_padding_mask"))

    @property
    def has_cache(self) -> bool:
        return self.layout is not None

    def read(self, module: nn.Module, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the logits (B, T, V) of further symbols (B, T), from the packed cache before them, and the cache."""
        assert self.layout is not None
        logits = []
        for chunk in symbols.split(1 if self.one_by_one else symbols.shape[1], 1):
            cache = None if state is None else self.layout.unpack(state)
            answer, cache = self._cached(module, chunk, cache)
            logits.append(answer)
            state = self.layout.pack(cache, len(chunk))
        return torch.cat(logits, 1), state

    def _empty(self) -> dict[str, Any]:
        return {self.required: None} if self.required else {}

    def _cached(self, module: nn.Module, symbols: Tensor, cache: Any) -> tuple[Tensor, Any]:
        if self.step is not None:
            logits, cache = self.step(module, symbols, cache)
            return logits.reshape(len(symbols), 1, self.vocab_size), cache
        options = self._empty() if cache is None else {self.cache_name: cache}
        options |= self._padding(symbols)
        if "use_cache" in self.arguments:
            options["use_cache"] = True
        output = module(symbols, **options)
        logits = _logits_of(output)
        self._check(logits, symbols)
        return logits, _cache_of(output, self.cache_name)

    def _tried(self, module: nn.Module, symbols: Tensor) -> Tensor:
        try:
            return self.logits(module, symbols)
        except Exception as error:
            message = " ".join(str(error).split())
            raise ValueError(
                f"module: expected one that maps (B, T) symbols to logits (B, T, V), but for zeros of shape "
                f"{tuple(symbols.shape)} it raised {type(error).__name__}: {message}"
            ) from error

    def _with_layout(self, module: nn.Module) -> Self:
        if self.step is None and not self.cache_name:
            return self
        try:
            caches = [self._cached(module, _zeros(module, rows, 1), None)[1] for rows in (2, 3)]
            if not _holds_tensors(caches[0]):
                return self  # the module has such an argument and returns no cache
            call = replace(self, layout=CacheLayout.of(*caches), one_by_one=self.step is not None)
        except Exception as error:
            message = " ".join(str(error).split())
            raise ValueError(
                f"module: `{self.cache_name or 'step'}` cannot be used as a cache ({type(error).__name__}: {message}); "
                "pass cache=False, or another step, to do without"
            ) from error
        single = replace(call, one_by_one=True)
        # A module that refuses several symbols after a cache raises an error; one that is wrong about them does not.
        return single if call._refuses_two(module) and not single._refuses_two(module) else call

    def _refuses_two(self, module: nn.Module) -> bool:
        _, state = self.read(module, _zeros(module, 2, 1), None)
        try:
            self.read(module, _zeros(module, 2, 2), state)
        except Exception:
            return True
        return False


def _zeros(module: nn.Module, rows: int, time: int) -> Tensor:
    return torch.zeros(rows, time, dtype=torch.long, device=next(module.parameters(), torch.empty(0)).device)


def _logits_of(output: Any) -> Tensor:
    """Return the logits of an answer: itself, its `logits`, or the first of a tuple."""
    logits = output if isinstance(output, Tensor) else _named(output, "logits")
    if logits is None and isinstance(output, tuple | list) and output:
        logits = output[0]
    if not isinstance(logits, Tensor):
        raise ValueError(
            f"expected logits, or an answer that names them or begins with them, got {type(output).__name__}"
        )
    return logits


def _cache_of(output: Any, name: str) -> Any:
    """Return the cache of an answer: its part of that name, or the first tensors behind the logits in a tuple."""
    cache = _named(output, name)
    if cache is None and isinstance(output, tuple | list):
        cache = next((part for part in output[1:] if _holds_tensors(part)), None)
    return cache


def _named(output: Any, name: str) -> Any:
    return output.get(name) if isinstance(output, Mapping) else getattr(output, name, None)


def _holds_tensors(cache: Any) -> bool:
    return any(isinstance(part, Tensor) for part in parts_of(cache))
