"""A model that a task offers: its options are the arguments of its constructor, and it must fit in memory."""

import os
from dataclasses import asdict, field
from functools import cached_property, partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from chainrule._app.tasks.config import CheckedOptions, options_class
from chainrule._app.tasks.constructor import REQUIRED, constructor_arguments
from chainrule._app.tasks.run_directory import count_weights
from chainrule._ranges import Range

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

_SIMPLE = (int, float, bool, str, NoneType)
_MEMBERS_HELP = "Models to average, each trained for itself; time and memory grow in proportion."


class Model:
    """Model class and its options: flags, types, help, ranges and defaults come from the constructor."""

    def __init__(
        self,
        home: str | type,
        *,
        fixed: dict[str, Any] | None = None,
        planned: tuple[str, ...] = (),
        hidden: tuple[str, ...] = (),
        members: bool = False,
        **defaults: Any,
    ):
        self.module, self.name = (
            ("chainrule.models", home) if isinstance(home, str) else (home.__module__, home.__name__)
        )
        self.fixed, self.planned, self.hidden, self.defaults = fixed or {}, planned, hidden, defaults
        self.members = members

    @cached_property
    def model_class(self) -> Any:
        return getattr(import_module(self.module), self.name)

    @cached_property
    def options(self) -> type[CheckedOptions]:
        arguments = constructor_arguments(self.module, self.name)
        named = {*self.planned, *self.hidden, *self.defaults, *self.fixed}
        if unknown := named - arguments.keys() - ({"num_members"} if self.members else set()):
            raise TypeError(f"{self.name} has no argument {min(unknown)}")
        option_fields = []
        for name, argument in arguments.items():
            hint, bounds = _without_range(argument.hint)
            if name in (*self.fixed, *self.hidden) or argument.default is REQUIRED or not _is_simple(hint):
                continue
            default = self.defaults.get(name, argument.default)
            if name in self.planned:
                hint, default = hint | None, None
            metadata = {"help": argument.help, "range": bounds}
            option_fields.append((name, hint, field(default=default, metadata=metadata)))
        if self.members:
            planned = "num_members" in self.planned
            hint, default = (int | None, None) if planned else (int, 1)
            members_help = f"{_MEMBERS_HELP} Follows from the budget where not given." if planned else _MEMBERS_HELP
            option_fields.append(
                ("num_members", hint, field(default=default, metadata={"help": members_help, "range": (1, 16)}))
            )
        return options_class(f"{self.name}Options", option_fields, CheckedOptions)

    def build(self, options: Any, **data_arguments: Any) -> Any:
        """Build the model from options and data arguments; an unset planned option takes the constructor's default."""
        parameters = signature(self.model_class).parameters
        chosen = {
            name: value for name, value in asdict(options).items() if not (name in self.planned and value is None)
        }
        members = chosen.pop("num_members", 1) if self.members else 1
        of_data = {name: value for name, value in data_arguments.items() if name in parameters}
        one = partial(self.model_class, **of_data, **self.fixed, **chosen)
        if members == 1:
            return one()
        from chainrule.models import Ensemble

        return Ensemble([one() for _ in range(members)])


def _without_range(hint: Any) -> tuple[Any, tuple[float, float] | None]:
    """Split a type from its range, also inside a union with None."""
    if get_origin(hint) is Annotated:
        ranges = [extra for extra in hint.__metadata__ if isinstance(extra, Range)]
        return get_args(hint)[0], (ranges[0].low, ranges[0].high) if ranges else None
    if get_origin(hint) in (UnionType, Union):
        parts = [_without_range(part) for part in get_args(hint)]
        bounds = next((bounds for _, bounds in parts if bounds is not None), None)
        plain = parts[0][0]
        for part, _ in parts[1:]:
            plain = plain | part
        return plain, bounds
    return hint, None


def _is_simple(hint: Any) -> bool:
    if get_origin(hint) in (UnionType, Union):
        return all(map(_is_simple, get_args(hint)))
    return hint in _SIMPLE or get_origin(hint) is Literal


def check_size(
    build: "Callable[[], nn.Module]", config: Path, weights: Path | None, *, least: int = 0, confirm: str = ""
) -> int:
    """Count the weights; refuse options of a larger model than the weights file, or than memory allows."""
    if weights is None:
        needed = least if least > memory() // _TRAINED else count_built(build, most=memory())
        check_memory(needed, f"{config}: its options", "restore it from a copy")
        if confirm and needed > _UNCONFIRMED:
            raise ValueError(
                f"{config}: nothing is trained yet, and its options make a model of {needed:,} weights: restore it "
                f"from a copy, or confirm it with {confirm}"
            )
        return needed
    there = count_weights(weights)
    needed = least if there < least else count_built(build, most=there)
    if there < needed:
        raise ValueError(
            f"{weights}: holds {there} numbers, but {config.name} and the data describe a model of at least "
            f"{needed}: one of the files was changed or comes from another run"
        )
    return needed


def count_built(build: "Callable[[], nn.Module]", most: int) -> int:
    """Count the weights of a model built on the meta device; stop at many more than `most`.

    >>> from torch import nn
    >>> count_built(lambda: nn.Linear(1 << 20, 1 << 20), most=10) > 10
    True
    """
    from torch.nn.modules.module import register_module_parameter_registration_hook

    from chainrule._app.tasks.unfilled import unfilled

    count = 0

    def stop_early(module: "nn.Module", name: str, weight: "nn.Parameter | None") -> None:
        nonlocal count
        count += 0 if weight is None else weight.numel()
        if count > _OFTEN * most:
            raise _TooManyError

    hook = register_module_parameter_registration_hook(stop_early)
    try:
        with unfilled():
            return sum(weight.numel() for weight in build().parameters())
    except _TooManyError:
        return count
    finally:
        hook.remove()


_UNCONFIRMED = 1 << 25  # weights, which take 0.8 GB to train
_OFTEN = 4  # times that a weight may be registered: shared by layers, or replaced


class _TooManyError(Exception):
    """A model has more weights than it may have."""


_TRAINED = 24  # bytes a weight: itself, its gradient, two moments of AdamW, and a masked copy with its gradient
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # of a container


def check_memory(weights: int, what: str, remedy: str) -> None:
    """Refuse a model that takes more memory to train than there is."""
    needed, there = weights * _TRAINED, memory()
    if needed > there:
        raise ValueError(
            f"{what} make a model of {weights:,} weights, which takes about {needed / 2**30:,.0f} GiB to train, more "
            f"than the {there / 2**30:,.0f} GiB of this machine: {remedy}"
        )


def memory() -> int:
    """Return the bytes of memory that this process may use, in its container."""
    limits = []
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in map(Path, _LIMITS):
        if path.is_file() and (limit := path.read_text(encoding="utf-8").strip()).isdecimal():
            limits.append(int(limit))
    return min(limits, default=1 << 62)
