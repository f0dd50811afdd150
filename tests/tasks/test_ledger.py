"""Likelihoods of rows, added up while they are scored."""

import pytest

from chainrule.tasks.abilities import Record
from chainrule.tasks.ledger import Basis, Tally


def test_rows_are_added_up_while_they_are_read():
    tally = Tally()

    def records():
        for nats in (1.0, 2.5):
            tally.add(nats, 2)
            yield Record({"nats": nats})

    answer = tally.answer(
        records(), lambda: [f"{tally.rows} rows"], heading="", basis=Basis("column"), empty="expected a row"
    )
    assert [record.values["nats"] for record in answer.records] == [1.0, 2.5]
    assert answer.closing() == ["2 rows"]
    entry = answer.entry()
    assert (entry.nats, entry.elements, str(entry.basis)) == (3.5, 4, "exact; nats per column")


def test_data_without_rows_are_refused():
    answer = Tally().answer(iter(()), tuple, heading="", basis=Basis("column"), empty="expected a row")
    with pytest.raises(ValueError, match="expected a row"):
        list(answer.records)
