"""What `config.json` of a run on a table holds, and how it is read back."""

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from chainrule.config import (
    FORMAT,
    Extent,
    OptimisationOptions,
    check_keys,
    check_options,
    read_object,
    read_options,
    read_path,
    within,
)


@dataclass(frozen=True)
class TableOptions:
    """The options of `chainrule.models.TableMADE`."""

    hidden_size: int = within(256, 1, 1 << 16)
    """Units of each layer."""
    num_layers: int = within(2, 1, 256)
    """Hidden layers."""
    components: int = within(8, 1, 1 << 10)
    """Of the mixture of a numeric column."""
    dropout: float = within(0.1, 0.0, 0.99)
    """Share of hidden units dropped in training."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class TableDataOptions:
    """How a table is read, and which of its rows are held out."""

    header: Literal["auto", "yes", "no"] = "auto"
    """Whether the first row is a header."""
    validation_fraction: float = within(0.1, 1e-4, 0.5)
    """Share of the rows that is held out."""
    min_count: int = within(2, 1, 1 << 40)
    """Rarer categories become <other>."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class TableRunConfig:
    """All of `config.json`.

    Args:
        source: the table as the user named it.
        validation: a separate validation file, if there is one.
        data: how the table is read.
        types: kinds of columns that the user named, in place of those found.
        table: what it came to: fingerprints of the files, counts of rows, kinds of columns.
        options: the options of the model.
        extent: how long training lasts.
        training: how it goes.
    """

    source: str
    validation: str | None
    data: TableDataOptions
    types: dict[str, str]
    table: dict[str, Any]
    options: TableOptions
    extent: Extent
    training: OptimisationOptions

    KIND: ClassVar[str] = "table"
    model: ClassVar[str] = "made"

    def to_json(self) -> dict[str, Any]:
        """The mapping that is written to disk."""
        from chainrule import __version__

        return {
            "format": FORMAT,
            "chainrule": __version__,
            "kind": self.KIND,
            "data": {"source": self.source, "validation": self.validation, "types": self.types, **asdict(self.data)},
            "table": self.table,
            "model": {"name": self.model, "options": asdict(self.options)},
            "training": {**asdict(self.extent), **asdict(self.training)},
        }

    @classmethod
    def from_json(cls, content: Any) -> "TableRunConfig":
        """Check and read what `to_json` made.

        Raises:
            ValueError: the content is of a newer format, or has an unknown key or a value that cannot be.
        """
        if not isinstance(content, dict) or content.get("kind") != cls.KIND:
            raise ValueError(f"kind: expected {cls.KIND!r}: this is no run on a table")
        if content.get("format") != FORMAT:
            raise ValueError(f"format: this version reads {FORMAT}, got {content.get('format')!r}")
        check_keys("config", content, {"format", "chainrule", "kind", "data", "table", "model", "training"})
        model, data = read_object(content, "model"), dict(read_object(content, "data"))
        check_keys("model", model, {"name", "options"})
        if model["name"] != cls.model:
            raise ValueError(f"model.name: expected {cls.model!r}, got {model['name']!r}")
        source, validation, types = read_path(data, "source"), read_path(data, "validation"), data.pop("types", None)
        if source is None:
            raise ValueError("data.source: expected a path, got nothing")
        if not isinstance(types, dict) or not all(isinstance(kind, str) for kind in types.values()):
            raise ValueError(f"data.types: expected kinds by name, got {types!r:.80}")
        training = dict(read_object(content, "training"))
        extent = {item.name: training.pop(item.name) for item in fields(Extent) if item.name in training}
        return cls(
            source=source,
            validation=validation,
            data=read_options(TableDataOptions, data, "data"),
            types=types,
            table=read_object(content, "table"),
            options=read_options(TableOptions, read_object(model, "options"), "model.options"),
            extent=read_options(Extent, extent, "training"),
            training=read_options(OptimisationOptions, training, "training"),
        )
