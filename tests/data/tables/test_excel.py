"""The first sheet of a workbook is a table with types; without fastexcel, an error says what to install."""

import sys
from zipfile import ZipFile

import pytest

from chainrule_app.readers.sources import is_table
from chainrule_app.readers.tables.prepare import prepare_table
from chainrule_app.readers.tables.table_file import TableFile

SHEETS = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
DOCUMENT = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
PACKAGE = "http://schemas.openxmlformats.org/package/2006"
XML = "application/vnd.openxmlformats"


def write_workbook(path, rows):
    def cell(value):
        text = f'<c t="inlineStr"><is><t>{value}</t></is></c>'
        return text if isinstance(value, str) else "<c/>" if value is None else f"<c><v>{value}</v></c>"

    def relation(kind, target):
        return (
            f'<Relationships xmlns="{PACKAGE}/relationships">'
            f'<Relationship Id="r1" Type="{DOCUMENT}/{kind}" Target="{target}"/></Relationships>'
        )

    with ZipFile(path, "w") as file:
        file.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{PACKAGE}/content-types"><Default Extension="rels" ContentType="{XML}-package.relationships'
            f'+xml"/><Default Extension="xml" ContentType="{XML}-officedocument.spreadsheetml.sheet.main+xml"/>'
            "</Types>",
        )
        file.writestr("_rels/.rels", relation("officeDocument", "xl/workbook.xml"))
        sheet = '<sheets><sheet name="rows" sheetId="1" r:id="r1"/></sheets>'
        file.writestr("xl/workbook.xml", f'<workbook xmlns="{SHEETS}" xmlns:r="{DOCUMENT}">{sheet}</workbook>')
        file.writestr("xl/_rels/workbook.xml.rels", relation("worksheet", "worksheets/sheet1.xml"))
        content = "".join(f"<row>{''.join(map(cell, row))}</row>" for row in rows)
        file.writestr(
            "xl/worksheets/sheet1.xml", f'<worksheet xmlns="{SHEETS}"><sheetData>{content}</sheetData></worksheet>'
        )
    return path


def test_a_workbook_is_a_table_with_types(tmp_path):
    pytest.importorskip("fastexcel")
    rows = [[["red", "007", "blue"][n % 3], n % 7, n / 4 if n % 5 else None] for n in range(60)]
    path = write_workbook(tmp_path / "rows.xlsx", [["colour", "count", "height"], *rows, [None, None, None]])
    assert is_table(path)
    assert [cells for _, cells in TableFile(path).rows()][:2] == [["red", "0", None], ["007", "1", "0.25"]]
    table = prepare_table(path, tmp_path / "table")
    assert [column.kind for column in table.schema.columns] == ["categorical", "integer", "real"]
    assert len(table.train) + len(table.valid) == 60
    assert table.manifest["source"]["bytes"] == path.stat().st_size
    path.write_bytes(b"PK no workbook")
    with pytest.raises(ValueError, match=r"rows.xlsx: expected an Excel workbook \("):
        TableFile(path)


def test_the_package_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    path = write_workbook(tmp_path / "rows.xlsx", [["a"], [1]])
    with pytest.raises(ImportError, match=r"rows\.xlsx: reading \.xlsx needs fastexcel, which is not installed"):
        TableFile(path)
