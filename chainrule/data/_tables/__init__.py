"""A table on disk becomes rows of numbers: files, kinds of columns, schemas, batches."""

from typing import TYPE_CHECKING

from chainrule._lazy import attach

if TYPE_CHECKING:
    from chainrule.data._delimited import parse_types as parse_types
    from chainrule.data._tables.cell import named_zone as named_zone
    from chainrule.data._tables.column_facts import ColumnFacts as ColumnFacts
    from chainrule.data._tables.column_schema import OTHER as OTHER
    from chainrule.data._tables.column_schema import ColumnSchema as ColumnSchema
    from chainrule.data._tables.prepare import Table as Table
    from chainrule.data._tables.prepare import TableSchema as TableSchema
    from chainrule.data._tables.prepare import open_table as open_table
    from chainrule.data._tables.prepare import prepare_table as prepare_table
    from chainrule.data._tables.prepare import table_batches as table_batches
    from chainrule.data._tables.prepare import table_evaluation as table_evaluation
    from chainrule.data._tables.table_file import TableFile as TableFile

__getattr__, __dir__ = attach(__name__)
