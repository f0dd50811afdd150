"""Integers and times with more digits than a float64 keeps come back exactly, or are refused with a remedy."""

import numpy as np
import pytest

from chainrule_app.readers.tables.prepare import prepare_table

IDS = [2**53 + offset for offset in (0, 1, 2, 3, 5)]


def prepared(folder, cells, **options):
    path = folder / "rows.csv"
    path.write_text("id,b\n" + "".join(f"{cell},{n % 7}\n" for n, cell in enumerate(cells)))
    return prepare_table(path, folder / "table", **options)


@pytest.mark.parametrize(
    "cells",
    [
        [str(IDS[n % 5]) for n in range(200)],
        [str(-IDS[n % 5]) for n in range(200)],
        [str(IDS[n % 5]) if n % 3 else "" for n in range(200)],
        [str(2**64 - 1 - n % 5) for n in range(200)],
        [str([3, 17, 2**63, 2**63 + 1][n % 4]) for n in range(200)],  # small ones among them
        [f"1234567890123456.7{n % 5}" for n in range(200)],
        [f"0.1234567890123456789{n % 5}" for n in range(200)],
    ],
)
def test_numbers_that_would_lose_digits_are_categories(tmp_path, cells):
    """Five identifiers became two numbers, and samples had some that the data lack."""
    table = prepared(tmp_path, cells)
    assert table.schema.columns[0].kind == "categorical"
    again = [row[0] for part in (table.train, table.valid) for row in table.schema.decode(np.asarray(part))]
    assert sorted(cell or "" for cell in again) == sorted(cells)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        ([str(2**53 - n % 5) for n in range(200)], "integer"),
        ([repr(0.1 * n) for n in range(200)], "real"),
        ([f"{n / 7:.18e}" for n in range(200)], "real"),  # as numpy writes them
        ([f"{n / 7:.20f}" for n in range(200)], "real"),  # all different: measured, not named
        ([f"{['', '1.0', '3.0', '14.0'][n % 4]}" for n in range(200)], "integer"),  # as pandas writes them
        ([f"{['2.0', '1.0', '3.0', '14.0'][n % 4]}" for n in range(200)], "real"),
        ([f"{['', '1.0', '3.0', '14.5'][n % 4]}" for n in range(200)], "real"),
    ],
)
def test_other_numbers_stay_numbers(tmp_path, cells, kind):
    assert prepared(tmp_path, cells).schema.columns[0].kind == kind


def test_integers_with_gaps_are_written_as_integers(tmp_path):
    column = prepared(tmp_path, ["", "1.0", "3.0", "14.0"] * 50).schema.columns[0]
    assert [column.decode(column.encode(cell)) for cell in ("3.0", "14", "")] == ["3", "14", None]


def test_too_many_large_integers_are_refused_with_a_remedy_that_works(tmp_path):
    times = [str(1_700_000_000_000_000_000 + 7 * n) for n in range(1200)]
    with pytest.raises(ValueError, match=r"column 'id': .*integers.* types=\"id=skip\"") as error:
        prepared(tmp_path, times)
    assert "id=real" not in str(error.value)
    assert prepared(tmp_path, times, types={"id": "skip"}).train.shape[1] == 1
    with pytest.raises(ValueError, match=r"at most 9,007,199,254,740,992, because larger .* types=\"id=categorical\""):
        prepared(tmp_path, times, types={"id": "integer"})
    assert prepared(tmp_path, times, types={"id": "categorical"}).schema.columns[0].kind == "categorical"


def test_parquet_keeps_unsigned_integers_decimals_and_nanoseconds(tmp_path):
    polars = pytest.importorskip("polars")
    wide = [2**64 - 1, 2**63 + 1, 2**53 + 1, 7] * 50
    nanoseconds = polars.Series([1_700_000_000_000_000_000 + n % 4 for n in range(200)])
    columns = {
        "u": polars.Series(wide, dtype=polars.UInt64),
        "t": nanoseconds.cast(polars.Datetime("ns")),
        "d": (nanoseconds % 10**9).cast(polars.Duration("ns")),
        "c": (nanoseconds % 10**9).cast(polars.Time),
        "b": [n % 7 for n in range(200)],
    }
    path = tmp_path / "rows.parquet"
    polars.DataFrame(columns).write_parquet(path)
    with pytest.raises(ValueError, match=r"'t': times finer than a microsecond, such as '2023-11-14 22:13:20\.0000"):
        prepare_table(path, tmp_path / "table", min_count=1)
    table = prepare_table(path, tmp_path / "table", min_count=1, types={"t": "categorical"})
    assert set(table.schema.columns[0].categories) == set(map(str, wide))
    assert [len(column.categories) for column in table.schema.columns] == [4, 4, 4, 4, 0]
    assert table.schema.columns[1].categories[1] == "2023-11-14 22:13:20.000000001"


def rare_categories(most_rare):
    return [f"shop{n % 50}" if n % 10 >= most_rare else f"single{n}" for n in range(6000)]


def test_categories_are_counted_after_rare_ones_are_merged(tmp_path):
    """A column of 50 shops and many that came once was refused for all of its texts."""
    (column, _) = prepared(tmp_path, rare_categories(3)).schema.columns
    assert (column.kind, len(column.categories)) == ("categorical", 35 + 1)
    for rare, options in ((3, {"min_count": 1}), (7, {})):  # 7: most rows
        with pytest.raises(
            ValueError, match='an identifier or free text: leave it out with types="id=skip", or keep t'
        ):
            prepared(tmp_path, rare_categories(rare), **options)


@pytest.mark.parametrize("rows", [60, 600])
def test_a_column_of_mostly_rare_texts_is_refused_in_a_small_table_too(tmp_path, rows):
    """With up to 1,000 different texts it was learned, and nearly all its samples were `<other>`."""
    cells = [f"u{n if n % 10 else 0}" for n in range(rows)]
    with pytest.raises(
        ValueError, match=rf"different texts in {rows * 9 // 10} rows, an identifier or free text: .*id=skip"
    ):
        prepared(tmp_path, cells)
    assert prepared(tmp_path, cells, types={"id": "categorical"}).schema.columns[0].kind == "categorical"


def test_a_kind_that_is_named_is_obeyed(tmp_path):
    (column, _) = prepared(tmp_path, rare_categories(7), types={"id": "categorical"}, min_count=5).schema.columns
    assert len(column.categories) == 15 + 1
    many = [f"u{n}" if n % 2 else f"v{n % 8}" for n in range(24_000)]
    (column, _) = prepared(tmp_path, many, types={"id": "categorical"}, min_count=5).schema.columns
    assert column.categories == ("v0", "v2", "v4", "v6", "<other>")
    with pytest.raises(ValueError, match=r"10,000\+ distinct values: merge the rare ones .* min_count 2 or more"):
        prepared(tmp_path, many, types={"id": "categorical"}, min_count=1)
