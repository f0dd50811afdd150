"""A table on disk becomes rows of numbers: files, kinds of columns, schemas, batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._kinds import is_table
    from chainrule.data._tables.column_facts import ColumnFacts, ColumnKind, parse_types
    from chainrule.data._tables.column_schema import OTHER, ColumnSchema
    from chainrule.data._tables.prepare import (
        Table,
        TableSchema,
        open_table,
        prepare_table,
        table_batches,
        table_evaluation,
    )
    from chainrule.data._tables.table_file import TableFile, reads_quickly

__all__ = [
    "OTHER",
    "ColumnFacts",
    "ColumnKind",
    "ColumnSchema",
    "Table",
    "TableFile",
    "TableSchema",
    "is_table",
    "open_table",
    "parse_types",
    "prepare_table",
    "reads_quickly",
    "table_batches",
    "table_evaluation",
]

__getattr__, __dir__ = attach(__name__)
