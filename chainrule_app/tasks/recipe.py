"""The parts of a run's model in words, and the model without the parts that chainrule adds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from chainrule_app.tasks.config import RunConfig
from chainrule_app.tasks.display import flag
from chainrule_app.tasks.model import Model


class Recipe:
    """Parts of a run's model in words; `--plain` sets the options in PLAIN."""

    PLAIN: ClassVar[dict[str, Any]] = {}
    MODELS: ClassVar[dict[str, Model]]
    config: RunConfig

    @classmethod
    def plain(cls, request: RunConfig, explicit_flags: frozenset[str]) -> tuple[RunConfig, frozenset[str]]:
        """Return the config of the named architecture alone, and the flags that this decides."""
        sections, decided = {}, set(explicit_flags)
        for section in ("data", "options", "training"):
            part = getattr(request, section)
            own = {name: value for name, value in cls.PLAIN.items() if hasattr(part, name)}
            for name, value in own.items():
                if flag(name) in explicit_flags and getattr(part, name) != value:
                    raise ValueError(f"{flag(name)}: --plain leaves this part of the model out: drop one of the two")
            sections[section] = replace(part, **own)
            decided |= set(map(flag, own))
        return replace(request, **sections), frozenset(decided)

    @property
    def recipe(self) -> str:
        """Return the model in words, such as `2 × LSTM 256 + 12-gram counts`."""
        members = getattr(self.config.options, "num_members", None) or 1
        networks = f"{members} × {self.architecture}" if members > 1 else self.architecture
        return " + ".join([networks, *self.added_parts()])

    @property
    def architecture(self) -> str:
        """Name one network of the run; with its size if several may be averaged."""
        name, options = self.config.model, self.config.options
        if not self.MODELS[name].members:
            return name
        label = name.upper() if "cell" in self.MODELS[name].fixed else name
        layers = f"{options.num_layers}-layer " if options.num_layers > 1 else ""
        return f"{layers}{label} {getattr(options, 'hidden_size', 0) or options.model_size}"

    def added_parts(self) -> Sequence[str]:
        """List the parts added to the networks; `--plain` omits them."""
        return ()
