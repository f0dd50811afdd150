"""A table on disk becomes rows of numbers: files, kinds of columns, schemas, batches."""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule_app.readers.delimited import parse_types as parse_types
    from chainrule_app.readers.tables.batches import table_batches as table_batches
    from chainrule_app.readers.tables.batches import table_evaluation as table_evaluation
    from chainrule_app.readers.tables.column_facts import ColumnFacts as ColumnFacts
    from chainrule_app.readers.tables.column_schema import OTHER as OTHER
    from chainrule_app.readers.tables.column_schema import ColumnSchema as ColumnSchema
    from chainrule_app.readers.tables.dates import named_zone as named_zone
    from chainrule_app.readers.tables.frame_table import FrameTable as FrameTable
    from chainrule_app.readers.tables.prepare import Table as Table
    from chainrule_app.readers.tables.prepare import TableSchema as TableSchema
    from chainrule_app.readers.tables.prepare import open_table as open_table
    from chainrule_app.readers.tables.prepare import prepare_table as prepare_table
    from chainrule_app.readers.tables.table_file import TableFile as TableFile
    from chainrule_app.readers.tables.table_file import save_table as save_table

__getattr__, __dir__ = attach(__name__)
