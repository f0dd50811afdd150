"""The directory of a run on a table, which is kept in `table/`.

table/schema.json              columns, their kinds and categories
table/train.rows, valid.rows   the rows as numbers
table/table.json               counts and fingerprints
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from chainrule.runs.config import FINGERPRINT, CheckedOptions, OptimisationOptions, check_entries, within
from chainrule.runs.run import TABLE, Run

if TYPE_CHECKING:
    from chainrule.data.tables import Table, TableSchema
    from chainrule.models.table_made import TableMADE


@dataclass(frozen=True)
class TableOptions(CheckedOptions):
    """The options of `chainrule.models.TableMADE`."""

    hidden_size: int = within(256, 1, 1 << 16)
    """Units of each layer."""
    num_layers: int = within(2, 1, 256)
    """Hidden layers."""
    components: int = within(8, 1, 1 << 10)
    """Of the mixture of a numeric column."""
    dropout: float = within(0.1, 0.0, 0.99)
    """Share of hidden units dropped in training."""


@dataclass(frozen=True)
class TableData(CheckedOptions):
    """How a table is read, and which of its rows are held out."""

    header: Literal["auto", "yes", "no"] = "auto"
    """Whether the first row is a header."""
    validation_fraction: float = within(0.1, 1e-4, 0.5)
    """Share of the rows that is held out."""
    types: str = ""
    """Kinds of columns where those found are not meant: COLUMN=KIND,... of categorical, integer, real and skip."""
    min_count: int = within(2, 1, 1 << 40)
    """Rarer categories become <other>."""


@dataclass(frozen=True)
class TableTraining(OptimisationOptions):
    """How a model of a table is trained: rows are short and many, and a pass over them is cheap."""

    batch_size: int = within(128, 1, 1 << 24)
    """Rows of a batch."""
    learning_rate: float = within(3e-3, 0.0, 1e3)
    """Peak learning rate of AdamW."""


class TableRun(Run["TableMADE"]):
    """A run on a table."""

    KIND = "table"
    DATA = TableData
    MODELS: ClassVar[dict[str, type]] = {"made": TableOptions}
    TRAINING = TableTraining

    @property
    def data(self) -> TableData:
        """How the table is read."""
        return cast(TableData, self.config.data)

    @property
    def options(self) -> TableOptions:
        """Those of the model."""
        return cast(TableOptions, self.config.options)

    @classmethod
    def check_facts(cls, facts: dict[str, Any]) -> None:
        if not {"source", "rows", "columns"} <= facts.keys():
            raise ValueError("facts: expected what preparing a table leaves, with source, rows and columns")
        check_entries("facts", facts, "source", FINGERPRINT)

    @cached_property
    def schema(self) -> "TableSchema":
        """The columns, read once."""
        from chainrule.data.tables import TableSchema

        return TableSchema.load(self.path / TABLE / "schema.json")

    def table(self) -> "Table":
        """The prepared rows."""
        from chainrule.data.tables import open_table

        return open_table(self.path / TABLE)

    def build(self) -> "TableMADE":
        from chainrule.models.table_made import TableMADE

        options = self.options
        sizes = [options.hidden_size] * options.num_layers
        return TableMADE(self.schema.heads(), sizes, components=options.components, dropout=options.dropout)

    def fewest_weights(self) -> int:
        return self.count_weights(self.schema)

    def count_weights(self, schema: "TableSchema") -> int:
        """Weights of the model of a schema, biases left out."""
        options, heads = self.options, schema.heads()
        features = sum(column.features() for column in heads)
        outputs = sum(column.outputs(options.components) for column in heads)
        hidden = options.hidden_size * (features + outputs + (options.num_layers - 1) * options.hidden_size)
        return hidden + features * outputs  # those that go past the hidden layers
