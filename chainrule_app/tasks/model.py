"""A model that a task offers: its options are the arguments of its constructor, and it must fit in memory."""

import os
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from functools import cache, cached_property, partial
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from chainrule.option_error import UserError
from chainrule_app.heavy import modes
from chainrule_app.tasks.config import CheckedOptions
from chainrule_app.tasks.run_directory import count_weights

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from chainrule.training import Findings
    from chainrule_app.tasks.preview import Observe


class Model:
    """Model class of the library with the dataclass of its options; tests hold the two equal.

    Args:
        home: name of a model in `chainrule.models`, or a class.
        options: dataclass, whose fields are arguments of the constructor; `num_members` of them may be averaged.
        fixed: arguments that are no options.
        planned: options that are open until the run is planned.
    """

    def __init__(
        self,
        home: str | type,
        options: type[CheckedOptions],
        *,
        fixed: dict[str, Any] | None = None,
        planned: tuple[str, ...] = (),
    ):
        self.module, self.name = (
            ("chainrule.models", home) if isinstance(home, str) else (home.__module__, home.__name__)
        )
        self.options, self.fixed, self.planned = options, fixed or {}, planned

    @property
    def members(self) -> bool:
        """True if several models may be averaged."""
        return any(item.name == "num_members" for item in fields(cast(Any, self.options)))

    @cached_property
    def model_class(self) -> Any:
        return getattr(import_module(self.module), self.name)

    def build(self, options: Any, **data_arguments: Any) -> Any:
        """Build the model from options and data arguments; an unset planned option takes the constructor's default."""
        parameters = signature(self.model_class).parameters
        chosen = {
            name: value for name, value in asdict(options).items() if not (name in self.planned and value is None)
        }
        members = chosen.pop("num_members", 1)
        of_data = {name: value for name, value in data_arguments.items() if name in parameters}
        one = partial(self.model_class, **of_data, **self.fixed, **chosen)
        if members == 1:
            return one()
        from chainrule.models import Ensemble

        return Ensemble([one() for _ in range(members)])


def check_size(
    build: "Callable[[], nn.Module]", config: Path, weights: Path | None, *, least: int = 0, confirm: str = ""
) -> int:
    """Count the weights; refuse options of a larger model than the weights file, or than memory allows."""
    if weights is None:
        needed = least if least > memory() // _TRAINED else count_built(build, most=memory())
        check_memory(needed, f"{config}: its options", "restore it from a copy")
        if confirm and needed > _UNCONFIRMED:
            raise UserError(
                f"{config}: nothing is trained yet, and its options make a model of {needed:,} weights",
                f"restore it from a copy, or confirm it with {confirm}",
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
    """Count the weights of a model built on the meta device; stop at many more than `most`."""
    _watch_weights()
    counter = _Counter(_OFTEN * most)
    token = _counter.set(counter)
    try:
        with modes.unfilled():
            return sum(weight.numel() for weight in build().parameters())
    except _TooManyError:
        return counter.count
    finally:
        _counter.reset(token)


@dataclass
class _Counter:
    most: int
    count: int = 0


_counter: ContextVar[_Counter | None] = ContextVar("_counter", default=None)  # of the model that this thread counts


@cache
def _watch_weights() -> None:
    """Count every weight that is registered while a thread counts.

    The hook stays: torch calls it for modules of all threads, and fails in those where it comes or goes meanwhile.
    """
    from torch.nn.modules.module import register_module_parameter_registration_hook

    register_module_parameter_registration_hook(_count_weight)


def _count_weight(module: "nn.Module", name: str, weight: "nn.Parameter | None") -> None:
    counter = _counter.get()
    if counter is None or weight is None:
        return
    counter.count += weight.numel()
    if counter.count > counter.most:
        raise _TooManyError


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
        raise UserError(
            f"{what} make a model of {weights:,} weights, which takes about {needed / 2**30:,.0f} GiB to train, more "
            f"than the {there / 2**30:,.0f} GiB of this machine",
            remedy,
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


def share_of(name: str, description: str) -> "Observe":
    """Observe the companion's weight in a `CalibratedMixture`."""

    def share(trained: Any) -> "Findings":
        from chainrule.training import Findings

        value = float(trained.share)
        return Findings({f"share_of_{name}": value}, f"{description}: {value:.0%} of the mean")

    return share
