"""The directory of a run on a table: as of any run, with `table/` in place of a text's vocabulary and corpus.

table/schema.json              columns, their kinds and categories
table/train.rows, valid.rows   the rows as numbers
table/table.json               counts and fingerprints
"""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chainrule.run import TABLE, Run
from chainrule.table_config import TableRunConfig

if TYPE_CHECKING:
    from chainrule.base import AutoregressiveModel
    from chainrule.data.tables import Table, TableSchema


class TableRun(Run):
    """A run on a table: `TableRun.open("runs/x").model()` is the trained model.

    Args:
        path: the directory.
        config: what its config.json holds.
    """

    config: TableRunConfig  # type: ignore[assignment]  # the other kind of config: what reads it is overridden here

    def __init__(self, path: Path, config: TableRunConfig):
        super().__init__(path, config)  # type: ignore[arg-type]  # the same

    @classmethod
    def config_from_json(cls, content: Any) -> Any:
        return TableRunConfig.from_json(content)

    @cached_property
    def schema(self) -> "TableSchema":
        """The columns, read once."""
        from chainrule.data.tables import TableSchema

        return TableSchema.load(self.path / TABLE / "schema.json")

    def table(self) -> "Table":
        """The prepared rows."""
        from chainrule.data.tables import open_table

        return open_table(self.path / TABLE)

    def _build(self) -> "AutoregressiveModel":
        from chainrule.models.table_made import TableMADE

        options = self.config.options
        sizes = [options.hidden_size] * options.num_layers
        return TableMADE(self.schema.heads(), sizes, components=options.components, dropout=options.dropout)

    def _unfilled(self) -> "AutoregressiveModel":
        return self.new_model(0)  # its masks are made with it, and are in no file

    def _fewest_weights(self) -> int:
        options, heads = self.config.options, self.schema.heads()
        outputs = sum(column.outputs(options.components) for column in heads)
        return options.hidden_size * (outputs + (options.num_layers - 1) * options.hidden_size)
