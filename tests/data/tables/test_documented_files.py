"""The small files in the documentation of tables are read as it says."""

from pathlib import Path

import pytest

from chainrule_app.readers.delimited import DelimitedFile
from chainrule_app.readers.tables.layout import find_layout
from chainrule_app.readers.tables.prepare import prepare_table

PAGE = Path(__file__).parents[3] / "docs" / "tables.md"
SEPARATORS = {"comma": ",", "semicolon": ";", "tab": "\t"}


def documented():
    """The rows of the table: a file, its separator, and its columns with their types."""
    lines = iter(PAGE.read_text(encoding="utf-8").splitlines())
    assert any(line.startswith("| file | separator |") for line in lines)
    next(lines)
    for line in lines:
        if not line.startswith("|"):
            return
        file, separator, columns = (cell.strip() for cell in line.strip("|").split(" | "))
        rows = [row.strip().replace("→", "\t") for row in file.strip("`").split("⏎")]
        content = "".join(f"{row}\n" for row in rows)
        yield content, SEPARATORS[separator], [tuple(column.rsplit(": ", 1)) for column in columns.split("; ")]


@pytest.mark.parametrize(("content", "separator", "columns"), list(documented()))
def test_a_documented_file_is_read_as_its_page_says(tmp_path, content, separator, columns):
    path = tmp_path / "rows.csv"
    path.write_text(content, encoding="utf-8")
    assert find_layout(DelimitedFile(path).beginning()).delimiter == separator
    schema = prepare_table(path, tmp_path / "table", validation=path, min_count=1).schema
    assert [(column.name, column.kind) for column in schema.columns] == columns


def test_each_decision_is_documented():
    rows = list(documented())
    assert {separator for _, separator, _ in rows} == {*SEPARATORS.values()}
    kinds = {kind for _, _, columns in rows for _, kind in columns}
    assert kinds == {"categorical", "integer", "real", "date"}
