"""Lines of JSON are the same table by polars and by Python, wherever the bytes are divided."""

import json

import pytest

from chainrule_app.readers import delimited
from chainrule_app.readers.records import record_rows
from chainrule_app.readers.tables import record_blocks
from chainrule_app.readers.tables.cell import as_number, is_missing
from chainrule_app.readers.tables.prepare import prepare_table
from chainrule_app.readers.tables.record_blocks import JsonBlocks
from chainrule_app.readers.tables.table_file import TableFile

REGULAR = [{"a": n, "b": n / 4, "c": ["x", "a b", "é"][n % 3], "d": n % 2 == 0} for n in range(60)]
SPARSE = [{key: value for key, value in record.items() if (key, n % 5) != ("b", 1)} for n, record in enumerate(REGULAR)]
MIXED = [{"a": n if n < 40 else f"n{n}", "b": n if n % 3 else n / 2, "c": None if n % 4 else " x "} for n in range(60)]
NESTED = [{"a": [n, "x"], "b": {"c": n}, "c": n} for n in range(60)]
LARGE = [{"a": 2**63 + n, "b": "NA" if n % 2 else "\u2028"} for n in range(60)]


def written(folder, records, end="\n"):
    path = folder / "rows.jsonl"
    path.write_bytes(end.join(json.dumps(record, ensure_ascii=record is records[0]) for record in records).encode())
    return path


def meaning(cell):
    """A number, or a text without blanks at its ends; None for a missing cell."""
    cell = None if cell is None else cell.strip()
    if is_missing(cell):
        return None
    number = as_number(cell)
    return cell if number is None else number


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize("stretch", [300, 1 << 20])
@pytest.mark.parametrize(
    "records", [REGULAR, SPARSE, MIXED, NESTED, LARGE], ids=["all", "some", "mix", "nested", "large"]
)
def test_records_are_those_of_python(tmp_path, monkeypatch, records, stretch, end):
    path = written(tmp_path, records, end)
    names, rows = record_rows(path)
    expected = [(line, list(map(meaning, cells))) for line, cells in rows]
    monkeypatch.setattr(record_blocks, "STRETCH", stretch)
    file = TableFile(path)
    assert file.names == names
    found = [(line, list(map(meaning, cells))) for line, cells in file.rows(empty_end=True)]
    assert found == expected


def test_regular_records_are_left_to_polars(tmp_path, monkeypatch):
    monkeypatch.setattr(record_blocks, "blocks_of_rows", None)
    monkeypatch.setattr(record_blocks, "STRETCH", 300)
    for records in (REGULAR, SPARSE, MIXED, LARGE):
        assert sum(map(len, TableFile(written(tmp_path, records)).blocks())) == 60


def test_the_types_of_earlier_records_are_kept_while_they_fit(tmp_path, monkeypatch):
    calls = []
    read = record_blocks.polars.read_ndjson
    monkeypatch.setattr(record_blocks.polars, "read_ndjson", lambda *a, **k: calls.append(k) or read(*a, **k))
    monkeypatch.setattr(record_blocks, "STRETCH", 300)
    monkeypatch.setattr(delimited, "_BEGINNING", 300)
    list(TableFile(written(tmp_path, REGULAR)).blocks())
    assert [set(call) for call in calls].count({"infer_schema_length"}) == 1


@pytest.mark.parametrize("stretch", [300, 1 << 20])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"a": 1, "b": 2, "e": 3}', "record 51 has the key 'e', which none of the first"),
        ("[1, 2]", "rows.jsonl line 51: expected one JSON object per line"),
        ('{"a": ', "rows.jsonl line 51: expected one JSON object per line"),
        ('{"a": "\\ud83d"}', r"rows.jsonl line 51: contains .ud83d, half of a surrogate pair"),
    ],
)
def test_a_bad_record_is_named(tmp_path, monkeypatch, stretch, line, message):
    path = written(tmp_path, REGULAR[:50])
    path.write_text(path.read_text() + "\n" + line + "\n")
    monkeypatch.setattr(record_blocks, "STRETCH", stretch)
    monkeypatch.setattr(delimited, "_BEGINNING", 300)
    with pytest.raises(ValueError, match=message):
        for _ in TableFile(path).blocks():
            pass


def test_pairs_of_surrogates_are_characters(tmp_path):
    path = written(tmp_path, [{"a": "\N{GRINNING FACE}"}] * 3)
    assert "ud83d" in path.read_text()
    assert [cells for _, cells in TableFile(path).rows()] == [["\N{GRINNING FACE}"]] * 3


def test_a_table_of_records_has_the_kinds_of_its_csv_file(tmp_path):
    lines = [",".join(str(value).lower() for value in record.values()) for record in REGULAR]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,d", *lines]))
    tables = [
        prepare_table(path, tmp_path / path.stem, types={"a": "integer"})
        for path in (tmp_path / "rows.csv", written(tmp_path, REGULAR))
    ]
    kinds = [[column.kind for column in table.schema.columns] for table in tables]
    assert kinds[0] == kinds[1] == ["integer", "real", "categorical", "categorical"]
    assert tables[0].train.tolist() == tables[1].train.tolist()
    assert tables[1].manifest["source"]["bytes"] == (tmp_path / "rows.jsonl").stat().st_size


def test_keys_of_equal_number_but_other_names_are_seen():
    """The number of quotes alone does not tell a missing key and a new one from a null."""
    lines = b'{"a": 1, "b": 2}\n' * 3
    reader = JsonBlocks(["a", "b"], None)
    assert reader._frame(lines) is not None
    assert reader._frame(b'{"a": 1, "c": 2}\n') is None
