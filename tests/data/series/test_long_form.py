"""Series in long form: a row for each item and moment, items of unequal length, what never changes, date formats."""

import numpy as np
import pytest

from chainrule.data import SeriesWindows
from chainrule_app.readers.series.schema import SeriesSchema
from chainrule_app.readers.series.series_file import read_series
from chainrule_app.readers.series.windows import by_past, places_of, window_evaluation


def write(path, lines, header="item_id,timestamp,target"):
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def days(item, first, values, extra=""):
    return [f"{item},2024-01-{first + number:02},{value}{extra}" for number, value in enumerate(values)]


@pytest.fixture
def sales(tmp_path):
    return write(
        tmp_path / "sales.csv", [*days("b", 3, [30, 31, 33, 37]), *days("a", 1, range(10)), *days("c", 6, [7, 9])]
    )


def test_items_are_laid_out_by_their_dates(sales):
    file = read_series(sales, None)
    assert (file.item, file.targets, file.date, file.value) == ("item_id", ("b", "a", "c"), "timestamp", "target")
    assert file.spans.tolist() == [[2, 6], [0, 10], [5, 7]]
    assert file.values.shape == (10, 3)
    assert file.values[2:6, 0].tolist() == [30, 31, 33, 37]
    outside = np.ones((10, 3), dtype=bool)
    for number, (start, stop) in enumerate(file.spans):
        outside[start:stop, number] = False
    assert np.array_equal(np.isnan(file.values), outside)
    assert [file.dates[0].day, file.dates[-1].day, str(file.frequency)] == [1, 10, "every day"]


def test_rows_of_items_may_be_mixed_and_without_dates_begin_together(sales, tmp_path):
    lines = sales.read_text().split("\n")[1:-1]
    mixed = sorted(lines, key=lambda line: line.split(",")[1])
    assert read_series(write(tmp_path / "mixed.csv", mixed), None).values.shape == (10, 3)
    backwards = read_series(write(tmp_path / "backwards.csv", lines[::-1]), None)
    assert backwards.targets == ("c", "a", "b")
    assert np.array_equal(backwards.values[:, ::-1], read_series(sales, None).values, equal_nan=True)
    with pytest.raises(ValueError, match="line 7: the date 2024-01-01 00:00:00 comes twice"):
        read_series(write(tmp_path / "twice.csv", [lines[4], *lines]), None)
    counted = [",".join(np.array(line.split(","))[[0, 2]]) for line in lines]
    file = read_series(write(tmp_path / "counted.csv", counted, "item_id,target"), None)
    assert file.spans.tolist() == [[0, 4], [0, 10], [0, 2]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([*days("a", 1, range(5)), "b,2024-01-01,1"], "line 7: expected at least two rows of 'b', got one"),
        (
            [*days("a", 1, range(5)), "b,2024-01-01,1", "b,2024-01-02,1", "b,2024-01-08,1"],
            "line 9: rows are .*, but more dates are missing",
        ),
        ([*days("a", 1, range(5)), *[f"b,2024-01-01 {hour:02}:00,1" for hour in (0, 1, 2)]], "expected"),
        ([*days("a", 1, range(5)), "b,2024-01-01 12:00,1", "b,2024-01-02 12:00,1"], "not a whole number of steps"),
        ([*days("a", 1, range(5)), ",2024-01-01,1"], "line 7, column 'item_id': expected the name of an item"),
        ([*days("a", 1, range(5)), *days("b", 1, ["", ""])], "expected values in b, got only empty cells"),
    ],
)
def test_items_that_do_not_fit_together_are_named(tmp_path, lines, message):
    with pytest.raises(ValueError, match=message):
        read_series(write(tmp_path / "bad.csv", lines), None)


def test_what_never_changes_is_told_of_each_item(tmp_path):
    header = "item_id,timestamp,target,size,region"
    lines = [*days("a", 1, range(10), ",2,north"), *days("b", 4, range(3, 10), ",6,south")]
    file = read_series(write(tmp_path / "x.csv", lines, header), "target", static="size,region")
    schema = SeriesSchema.fit(file, 8, 1, 1, static="size,region")
    assert schema.statics == ("size", "region=north", "region=south")
    assert schema.static_values == ((-1.0, 1.0, 0.0), (1.0, 0.0, 1.0))
    features = schema.features(file)
    assert features.shape == (10, 2, 3 + 2 * len(schema.calendar))
    assert features[4, 1, :3].tolist() == [1.0, 0.0, 1.0]
    with pytest.raises(ValueError, match=r"line 3, column 'size': expected '2' in all rows, got '3'"):
        read_series(
            write(tmp_path / "y.csv", [lines[0], lines[1].replace(",2,", ",3,")], header), "target", static="size"
        )
    with pytest.raises(ValueError, match="static: expected a column of items"):
        read_series(write(tmp_path / "z.csv", ["1,2", "2,2"], "target,size"), "target", static="size")


def test_a_new_item_tells_what_training_knows(tmp_path):
    header = "item_id,timestamp,target,size,region"
    lines = [*days("a", 1, range(10), ",2,north"), *days("b", 1, range(10), ",6,south")]
    file = read_series(write(tmp_path / "x.csv", lines, header), "target", static="size,region")
    schema = SeriesSchema.fit(file, 8, 1, 1, static="size,region")

    def opened(told):
        path = write(tmp_path / "new.csv", [*lines, *days("c", 1, range(10), told)], header)
        return schema.grown(schema.open(path, new_items=True)).static_values[2]

    assert opened(",4,south") == (0.0, 0.0, 1.0)
    assert opened(",,") == (0.0, 0.0, 0.0)  # not known
    for told, message in ((",4,east", "region: expected one of north, south,"), (",big,south", "size: expected a num")):
        with pytest.raises(ValueError, match=f"item_id 'c': {message}"):
            opened(told)


def test_covariates_belong_to_their_item_and_must_be_known_ahead(tmp_path):
    header = "item_id,timestamp,target,price"
    lines = [*days("a", 1, [1, 3, 2, 5], ",10"), *days("b", 1, [4, 6, 5, 8, 9, 7], ",20")]
    ahead = ["a,2024-01-05,,11", "a,2024-01-06,,12", "b,2024-01-07,,21", "b,2024-01-08,,22"]
    file = read_series(write(tmp_path / "x.csv", [*lines, *ahead], header), "target", "price")
    assert file.spans.tolist() == [[0, 4], [0, 6]]
    schema = SeriesSchema.fit(file, 4, 1, 1)
    features = schema.features(file, horizon=2)
    price = features[:, :, 0] * schema.spreads[0] + schema.centres[0]
    np.testing.assert_allclose(price[4:6, 0], [11, 12])
    np.testing.assert_allclose(price[6:8, 1], [21, 22])
    short = read_series(write(tmp_path / "y.csv", [*lines, *ahead[:3]], header), "target", "price")
    with pytest.raises(ValueError, match=r"2 rows after the last value of 'b' with price filled in .*, got 1"):
        schema.features(short, horizon=2)


def test_another_file_may_have_some_of_the_items_and_no_other(sales, tmp_path):
    file = read_series(sales, None)
    schema = SeriesSchema.fit(file, 7, 1, 0)
    some = schema.open(write(tmp_path / "some.csv", days("a", 1, [5, 6, 7])))
    assert some.targets == file.targets
    assert some.spans.tolist() == [[0, 0], [0, 3], [0, 0]]
    with pytest.raises(ValueError, match="item_id: 'z' is not among the 3 items of training"):
        schema.open(write(tmp_path / "new.csv", days("z", 1, [5, 6, 7])))


def test_dates_are_read_and_written_in_a_format(tmp_path):
    lines = [f"a,{day:02}/01/2024 00h,{day}" for day in range(1, 15)]
    file = read_series(write(tmp_path / "x.csv", lines), None, date_format="%d/%m/%Y %Hh")
    assert (file.dates[1].day, file.dates[1].month, file.date_text(file.dates[1])) == (2, 1, "02/01/2024 00h")
    with pytest.raises(ValueError, match=r"line 3, column 'timestamp': expected a date as %d/%m/%Y %Hh writes it, got"):
        read_series(write(tmp_path / "y.csv", [lines[0], "a,2024-01-02,3"]), None, date_format="%d/%m/%Y %Hh")


def test_windows_are_inside_their_series_and_each_is_as_likely_as_any():
    spans = np.array([[3, 20], [0, 9], [12, 14]])
    values = np.full((20, 3), np.nan)
    for number, (start, stop) in enumerate(spans):
        values[start:stop, number] = 100 * number + np.arange(start, stop)
    windows = SeriesWindows(values, np.zeros((20, 0)), past=2, length=4, batch_size=16, spans=spans)
    assert windows.steps_per_epoch == ((20 - 3 - 5) + (9 - 5)) // 16 == 1
    batches = [windows.at(step) for step in range(100)]
    first = np.concatenate([batch.x[:, 0].numpy() for batch in batches])
    seen, counts = np.unique(first, return_counts=True)
    assert seen.tolist() == [*np.arange(5.0, 17.0), *np.arange(102.0, 106.0)]
    assert counts.min() > 60  # of 1,600, 100 each
    assert counts.max() < 150
    assert all(bool(batch.x.isfinite().all() and batch.context["past"].isfinite().all()) for batch in batches)


def test_held_out_windows_have_every_value_once_and_no_other():
    spans = np.array([[0, 30], [10, 21], [22, 30]])
    values = np.full((30, 3), np.nan)
    for number, (start, stop) in enumerate(spans):
        values[start:stop, number] = 100 * number + np.arange(start, stop)
    places = places_of(spans, [14, 18, 22, 26], 4)
    assert places == [(14, 0), (14, 1), (18, 0), (22, 0), (26, 0), (26, 2)]
    batches = list(window_evaluation(values, np.zeros((30, 0)), places, past=9, horizon=4, batch_size=2, spans=spans))
    found = np.concatenate([batch.x.flatten().numpy() for batch in batches])
    wanted = [*range(14, 30), *range(114, 118), *range(226, 230)]
    assert sorted(found.tolist()) == wanted
    for batch in batches:
        past = batch.context["past"].numpy()
        np.testing.assert_array_equal(past, batch.x[:, :1].numpy() - np.arange(past.shape[1], 0, -1))
    assert dict(by_past(places, spans, 9)) == {9: [0, 2, 3, 4], 4: [1, 5]}
