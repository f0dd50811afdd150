"""Columns of dates in the playground: texts to the page, integers to the model."""

import numpy as np

import chainrule
from chainrule.serve._playground_answers import about_table, complete_row, score_row


def test_dates_are_shown_and_given_as_texts(tmp_path) -> None:
    days = np.datetime64("2024-01-01") + np.arange(100) * 17 % 97
    path = tmp_path / "rows.csv"
    path.write_text("day,size\n" + "".join(f"{day},{number % 7}\n" for number, day in enumerate(days)))
    run = chainrule.fit(path, steps=1, hidden_size=8)
    day, _ = about_table(run)["columns"]
    assert (day["kind"], day["low"]) == ("date", "2024-01-01")
    [found] = complete_row(run, {"size": "3"}, 50, 0)["columns"]
    shown = [found["edges"][0], *found["quantiles"], found["edges"][-1]]
    assert shown == sorted(shown)
    assert all(day["low"] <= text <= day["high"] for text in shown)
    assert abs(sum(found["bins"]) - 1) < 1e-9
    assert score_row(run, {"size": "3", "day": "2024-02-01"})["nats"] > 0
