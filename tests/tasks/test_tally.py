"""Likelihoods of rows, added up while they are scored."""

import math

import pytest

from chainrule._app.results import Column
from chainrule._app.tasks.likelihood_record import Basis, Tally


def test_rows_are_added_up_while_they_are_read():
    tally = Tally()

    def rows():
        for nats in (1.0, 2.5):
            tally.add(nats, 2)
            yield (nats,)

    scores = tally.result([Column("nats")], rows(), basis=Basis("column"), unit="row", empty="expected a row")
    assert scores.values == [1.0, 2.5]
    assert scores.summary == {"rows": 2, "nats_per_row": 1.75, "bits_per_column": pytest.approx(3.5 / 4 / math.log(2))}
    entry = scores.likelihood()
    assert (entry.nats, entry.elements, str(entry.basis)) == (3.5, 4, "exact; nats per column")


def test_data_without_rows_are_refused():
    scores = Tally().result([Column("nats")], iter(()), basis=Basis("column"), unit="row", empty="expected a row")
    with pytest.raises(ValueError, match="expected a row"):
        list(scores)
