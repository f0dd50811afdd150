"""What `config.json` of a run holds, and how it is read back: every key known, every value of its type and range.

The same dataclasses are the option groups of `chainrule train`: a default is written here once, an option checked once.
"""

import math
from dataclasses import asdict, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

FORMAT = 1
ModelName = Literal["lstm", "gru", "rnn"]
OPTION_OF = {"reset_after": "gru", "nonlinearity": "rnn"}  # options of one model alone

Options = TypeVar("Options")


def within(default: Any, low: float, high: float) -> Any:
    return field(default=default, metadata={"range": (low, high)})


@dataclass(frozen=True)
class RecurrentOptions:
    """The options of `chainrule.models.RecurrentLM`, its cell apart: that is the name of the model."""

    hidden_size: int = within(512, 1, 1 << 16)
    """Units of each layer."""
    num_layers: int = within(1, 1, 256)
    """Layers, one above the other."""
    embedding_size: int | None = within(None, 1, 1 << 16)
    """Features of each symbol; where not given, hidden-size for words and subwords, else one-hot."""
    dropout: float = within(0.3, 0.0, 0.99)
    """Share of features dropped in training; 0 where the text is far larger than the model can learn."""
    tie_weights: bool = False
    """Use the embedding as the output matrix."""
    reset_after: bool = True
    """Which GRU: reset after the product, or before it."""
    nonlinearity: Literal["tanh", "relu", "sigmoid", "identity"] = "tanh"
    """Of the plain RNN."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class DataOptions:
    """How a text becomes symbols, and which part of it is held out."""

    level: Literal["char", "byte", "word", "bpe"] = "char"
    """What one symbol is."""
    reading: Literal["stream", "lines"] = "stream"
    """One continuous stream, or one example per line."""
    validation_fraction: float | None = within(None, 0.0, 0.9)
    """Tail of the text that is held out; 0.01 of a megabyte or more where not given, up to 0.05 of a shorter text."""
    vocabulary_size: int | None = within(None, 3, 1 << 24)
    """Keep this many symbols at most (word, bpe)."""
    min_count: int = within(1, 1, 1 << 40)
    """Rarer symbols become unknown."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class Extent:
    """How long training lasts: one of the three, or none for the default of `chainrule.training.TrainingOptions`."""

    steps: int | None = within(None, 1, 1 << 53)
    epochs: float | None = within(None, 1e-9, 1e9)
    budget: float | None = within(None, 1e-3, 1e9)

    def __post_init__(self) -> None:
        check_options(self)
        given = [name for name, value in asdict(self).items() if value is not None]
        if len(given) > 1:
            raise ValueError(f"{given[1]}: expected one of --budget, --steps and --epochs, got {' and '.join(given)}")


@dataclass(frozen=True)
class OptimisationOptions:
    """The options of `chainrule.training.TrainingOptions`, how long it lasts apart; the defaults are the same.

    `watch_gradients` alone is not among them: it decides on what `chainrule.training.train` is given to look with.
    """

    batch_size: int = within(32, 1, 1 << 24)
    """Rows of a batch."""
    chunk_length: int = within(64, 1, 1 << 24)
    """Symbols that gradients flow through."""
    line_length: int = within(1024, 1, 1 << 24)
    """Longer lines are cut in training (--reading lines)."""
    learning_rate: float = within(6e-3, 0.0, 1e3)
    """Peak learning rate of AdamW."""
    weight_decay: float = within(0.01, 0.0, 1e3)
    """Decoupled weight decay of matrices."""
    warmup: float = within(0.03, 0.0, 1.0)
    """Share of the run in which the learning rate rises."""
    clip_norm: float | None = within(1.0, 0.0, 1e9)
    """Largest global norm of the gradient."""
    validate_every: int | None = within(None, 1, 1 << 53)
    """Steps between validations; about ten over the run where not given."""
    patience: int | None = within(None, 1, 1 << 53)
    """Stop after so many validations without improvement; never where not given."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; auto takes bfloat16 where the device computes it."""
    seed: int = within(0, 0, (1 << 63) - 1)
    """The same seed gives the same run on the same machine."""
    device: str = "auto"
    """Where to compute: auto, cpu or cuda."""
    tensorboard: bool = False
    """Write TensorBoard events too."""
    watch_gradients: bool = False
    """Log how gradients flow back through time."""
    watch_every: int | None = within(None, 1, 1 << 53)
    """Steps between looks at the gradients; 20 where not given, 100 on a GPU."""

    def __post_init__(self) -> None:
        check_options(self)


@dataclass(frozen=True)
class RunConfig:
    """All of `config.json`.

    Args:
        source: the text as the user named it; None is the text built into Python.
        validation: a separate validation file, if there is one.
        data: how the text is read.
        corpus: what it came to: `source` and `validation` by name, size and SHA-256, by which a resumed run knows its
            text again, and the counts of the parts `train` and `valid`.
        model: its name, one of `chainrule.run.MODELS`.
        options: the options of the model.
        extent: how long training lasts.
        training: how it goes.
    """

    source: str | None
    validation: str | None
    data: DataOptions
    corpus: dict[str, Any]
    model: ModelName
    options: RecurrentOptions
    extent: Extent
    training: OptimisationOptions

    KIND: ClassVar[str] = "text"

    def __post_init__(self) -> None:
        for name, model in OPTION_OF.items():
            if self.model != model and getattr(self.options, name) != getattr(RecurrentOptions, name):
                raise ValueError(f"{name}: an option of the model {model}, but the model is {self.model}: leave it out")

    def to_json(self) -> dict[str, Any]:
        """The mapping that is written to disk."""
        from chainrule import __version__

        return {
            "format": FORMAT,
            "chainrule": __version__,
            "kind": self.KIND,
            "data": {"source": self.source, "validation": self.validation, **asdict(self.data)},
            "corpus": self.corpus,
            "model": {"name": self.model, "options": asdict(self.options)},
            "training": {**asdict(self.extent), **asdict(self.training)},
        }

    @classmethod
    def from_json(cls, content: Any) -> "RunConfig":
        """Check and read what `to_json` made.

        Raises:
            ValueError: the content is of a newer format, or has an unknown key or a value that cannot be.
        """
        if not isinstance(content, dict) or "format" not in content or "chainrule" not in content:
            raise ValueError("expected an object with the keys format and chainrule: this is no chainrule run")
        if type(content["format"]) is not int or content["format"] < 1:
            raise ValueError(f"format: expected {FORMAT}, got {content['format']!r}")
        if content["format"] > FORMAT:
            raise ValueError(
                f"format: this version reads {FORMAT}, the run has {content['format']} "
                f"(written by chainrule {content['chainrule']}): install a newer chainrule"
            )
        if "kind" in content and content["kind"] != cls.KIND:
            raise ValueError(f"kind: expected {cls.KIND!r}, got {content['kind']!r}")
        check_keys("config", content, {"format", "chainrule", "kind", "data", "corpus", "model", "training"})
        model, data = read_object(content, "model"), dict(read_object(content, "data"))
        check_keys("model", model, {"name", "options"})
        if not _fits(model["name"], ModelName, None):
            raise ValueError(f"model.name: expected {_describe(ModelName, None)}, got {model['name']!r}")
        training = dict(read_object(content, "training"))
        extent = {item.name: training.pop(item.name) for item in fields(Extent) if item.name in training}
        source, validation = read_path(data, "source"), read_path(data, "validation")
        return cls(
            source=source,
            validation=validation,
            data=read_options(DataOptions, data, "data"),
            corpus=_checked_corpus(read_object(content, "corpus")),
            model=model["name"],
            options=read_options(RecurrentOptions, read_object(model, "options"), "model.options"),
            extent=read_options(Extent, extent, "training"),
            training=read_options(OptimisationOptions, training, "training"),
        )


def read_options(kind: type[Options], content: dict[str, Any], where: str) -> Options:
    """Make a dataclass of options from an untrusted mapping.

    Raises:
        ValueError: a key is unknown or missing, a value is of another type or out of range.
    """
    names = {item.name for item in fields(kind)}  # type: ignore[arg-type]  # Options is a dataclass; a TypeVar cannot say so
    check_keys(where, content, names)
    try:
        return kind(**content)
    except ValueError as error:
        raise ValueError(f"{where}.{error}") from None


def check_options(options: Any) -> None:
    """Check every field of a dataclass against its annotation and the range in its metadata.

    >>> RecurrentOptions(hidden_size=0)
    Traceback (most recent call last):
    ValueError: hidden_size: expected a whole number from 1 to 65536, got 0
    """
    hints = get_type_hints(type(options))
    for item in fields(options):
        value = getattr(options, item.name)
        if not _fits(value, hints[item.name], item.metadata.get("range")):
            expected = _describe(hints[item.name], item.metadata.get("range"))
            raise ValueError(f"{item.name}: expected {expected}, got {value!r}")


def _fits(value: Any, hint: Any, bounds: tuple[float, float] | None) -> bool:
    if get_origin(hint) is UnionType:
        return any(_fits(value, member, bounds) for member in get_args(hint))
    if get_origin(hint) is Literal:
        return isinstance(value, str) and value in get_args(hint)
    if hint is NoneType:
        return value is None
    if hint is float and type(value) is int:
        value = float(value) if abs(value) < 1 << 53 else math.inf
    if type(value) is not hint:  # exactly: True is no number
        return False
    return bounds is None or bounds[0] <= value <= bounds[1]


def _describe(hint: Any, bounds: tuple[float, float] | None) -> str:
    if get_origin(hint) is UnionType:
        return " or ".join(_describe(member, bounds) for member in get_args(hint))
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(map(str, get_args(hint)))
    named = {NoneType: "nothing", int: "a whole number", float: "a number", bool: "true or false", str: "text"}[hint]
    return f"{named} from {bounds[0]} to {bounds[1]}" if bounds is not None and hint in (int, float) else named


def check_keys(where: str, content: dict[str, Any], expected: set[str]) -> None:
    if unknown := sorted(map(str, content.keys() - expected)):
        raise ValueError(f"{where}: unknown key {unknown[0]!r} (known: {', '.join(sorted(expected))})")
    if missing := sorted(expected - content.keys()):
        raise ValueError(f"{where}: the key {missing[0]!r} is missing")


def read_object(content: dict[str, Any], key: str) -> dict[str, Any]:
    value = content[key]
    if not isinstance(value, dict):
        raise ValueError(f"{key}: expected an object, got {value!r}")
    return value


_FINGERPRINT = {"name": str, "bytes": int, "sha256": str}
_COUNTS = {"elements": int, "lines": int, "unknown": int}


def _checked_corpus(content: dict[str, Any]) -> dict[str, Any]:
    check_keys("corpus", content, {"source", "validation", "train", "valid"})
    for part, kinds in (("source", _FINGERPRINT), ("validation", _FINGERPRINT), ("train", _COUNTS), ("valid", _COUNTS)):
        if part == "validation" and content[part] is None:
            continue
        check_keys(f"corpus.{part}", read_object(content, part), set(kinds))
        for name, kind in kinds.items():
            if type(content[part][name]) is not kind:
                raise ValueError(f"corpus.{part}.{name}: expected {_describe(kind, None)}, got {content[part][name]!r}")
    return content


def read_path(content: dict[str, Any], key: str) -> str | None:
    value = content.pop(key, None)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"data.{key}: expected a path or null, got {value!r}")
    return value
