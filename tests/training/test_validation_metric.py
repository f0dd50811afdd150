"""Models of labels given something, and measures other than the likelihood."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from training_toy import ToyBatch, ToyLines, ToyModel, ToyStream, held_out, options

from chainrule._base import Context, LikelihoodModel
from chainrule.training import Evaluation, MetricValue, Objective, Processes, ValidationMetric, count_elements, train
from chainrule.training import _duration as duration
from chainrule.training import _loop as loop
from chainrule.training import _report as report
from chainrule.training import _validation as validation
from chainrule.training._duration import Position
from chainrule.training._measurements import Likelihood, MetricResult

INPUTS = torch.randn(32, 3, generator=torch.Generator().manual_seed(0))
LABELS = (INPUTS[:, 0] > 0).long()


class Labeller(LikelihoodModel):
    """p(label | vector), no model of sequences."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Linear(3, 2)

    def log_prob(self, x: Tensor, context: Context = None, lengths: Tensor | None = None) -> Tensor:
        return self.scores(context["vector"]).log_softmax(1).gather(1, x.unsqueeze(1)).squeeze(1)


class Labels:
    steps_per_epoch = 1

    def at(self, step: int) -> ToyBatch:
        return ToyBatch(LABELS, context={"vector": INPUTS}, whole=True)


def test_a_model_of_labels_learns_from_whole_rows_with_a_context(tmp_path):
    model = Labeller()
    result = train(model, Labels(), lambda: [Labels().at(0)], options(steps=60, learning_rate=0.1), tmp_path)
    assert result.best.elements == len(LABELS)
    assert result.best.nats == pytest.approx(-model.log_prob(LABELS, {"vector": INPUTS}).sum().item(), rel=1e-5)
    assert result.best.nats_per_element < 0.2
    assert result.best_value is None


def test_chunks_are_refused_where_no_state_goes_on():
    with pytest.raises(TypeError, match="whole rows"):
        Objective(Labeller())(LABELS.unsqueeze(1))


def test_every_value_of_a_whole_row_counts():
    assert count_elements(ToyBatch(torch.zeros(2, 3, 4, 5), whole=True)) == 120
    assert count_elements(ToyBatch(torch.zeros(7), whole=True)) == 7


def test_the_weights_that_are_kept_are_those_that_the_metric_values_most(tmp_path):
    asked = []

    def answer(model, rows):
        assert not model.training
        assert not torch.is_grad_enabled()
        return [0] * len(rows)

    def compare(rows, answers, step):
        asked.append((step, len(answers)))
        return MetricValue("luck", {4: 1.0, 8: 5.0}.get(step, 2.0), "an example")

    result = train(
        ToyModel(), ToyStream(), held_out, options(), tmp_path, metric=ValidationMetric(100, answer, compare)
    )
    assert asked == [(4, 100), (8, 100), (12, 100), (16, 100)]
    assert (result.best_step, result.best_value, result.best_rows) == (8, 5.0, 100)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    validations = [line for line in lines if line["event"] == "validation"]
    assert [line["luck"] for line in validations] == [1.0, 5.0, 2.0, 2.0]
    assert [line["best"] for line in validations] == [True, True, False, False]


def test_a_metric_survives_an_interruption(tmp_path):
    metric = ValidationMetric(1, lambda model, rows: [0], lambda rows, answers, step: MetricValue("luck", 1 / step))
    train(ToyModel(), ToyLines(), held_out, options(steps=8), tmp_path, metric=metric)
    result = train(ToyModel(), ToyLines(), held_out, options(steps=16), tmp_path, metric=metric, resume=True)
    assert (result.best_step, result.best_value) == (4, 0.25)


def finding(nats, elements=1, common=None, batches=1):
    whole = Evaluation(nats, elements)
    return Likelihood(whole, whole if common is None else common, batches, whole=False)


def verdict(value, common=None, rows=1, margin=0.0):
    return MetricResult(
        MetricValue("luck", value), value if common is None else common, rows, whole=False, margin=margin
    )


def test_without_a_metric_and_between_equals_the_likelihood_decides():
    position = Position(step=1)
    assert position.record(finding(2.0))
    assert not position.record(finding(3.0))
    position = Position(step=1)
    assert position.record(finding(4.0), verdict(0.1))
    assert not position.record(finding(5.0), verdict(0.1))
    assert position.record(finding(1.0), verdict(0.1))  # of equals, the likelier
    assert not position.record(finding(0.5), verdict(0.05))
    assert position.record(finding(0.4), verdict(0.05), by_likelihood=True)
    assert not position.record(finding(0.45), verdict(0.2), by_likelihood=True)


def test_a_validation_that_read_more_is_compared_on_as_much_as_the_best_one_read():
    position = Position(step=1)
    assert position.record(finding(20.0, 20, batches=2))
    assert not position.record(finding(28.0, 30, common=Evaluation(22.0, 20), batches=3))  # the rest was easy
    assert (position.best, position.best_batches, position.validation_batches) == ((20.0, 20), 2, 3)
    assert position.record(finding(32.0, 30, common=Evaluation(18.0, 20), batches=3))  # the rest was hard
    assert (position.best, position.best_batches) == ((32.0, 30), 3)


def test_a_metric_of_more_rows_is_compared_on_the_rows_of_the_best_one():
    position = Position(step=1)
    assert position.record(finding(1.0), verdict(0.8, rows=60))
    assert not position.record(finding(1.0), verdict(0.9, common=0.7, rows=100))
    assert (position.best_value, position.best_rows, position.measured_rows) == (0.8, 60, 100)
    assert position.record(finding(1.0), verdict(0.6, common=0.9, rows=100))
    assert (position.best_value, position.best_rows) == (0.6, 100)


def test_few_rows_do_not_decide_against_many():
    """Of SST-2, 87.5% of 8 rows at step 31 stood to the end against 81.07% of all 692 at step 364."""
    position = Position(step=31)
    assert position.record(finding(1.0), verdict(0.875, rows=8))
    position.step = 364
    assert position.record(finding(0.9), verdict(0.8107, common=0.625, rows=692))
    assert (position.best_step, position.best_value, position.highest_value) == (364, 0.8107, 0.8107)
    assert not position.record(finding(0.1), verdict(1.0, rows=8))  # nor afterwards


def test_a_small_part_of_the_likelihood_does_not_decide_against_a_large_one():
    position = Position(step=1)
    assert position.record(finding(1.0, 10))
    assert position.record(finding(80.0, 40, common=Evaluation(30.0, 10), batches=4))
    assert not position.record(finding(0.1, 10))
    assert (position.best, position.best_batches) == ((80.0, 40), 4)


def test_within_the_margin_of_the_highest_value_the_later_weights_are_kept():
    position, kept = Position(step=1), []
    for value in (0.4, 0.32, 0.29, 0.36, 0.5, 0.4, 0.39):
        if position.record(finding(1.0 + value), verdict(value, margin=0.1)):  # less likely, too
            kept.append(value)
    assert kept == [0.4, 0.32, 0.36, 0.5, 0.4]  # the margin is below the highest, and not below what was kept
    assert (position.best_value, position.highest_value) == (0.4, 0.5)


def test_the_margin_holds_for_the_rows_that_the_best_validation_had():
    position = Position(step=1)
    assert position.record(finding(1.0), verdict(0.8, rows=60, margin=0.1))
    assert not position.record(finding(1.0), verdict(0.9, common=0.6, rows=100, margin=0.1))
    assert position.record(finding(1.0), verdict(0.5, common=0.75, rows=100, margin=0.1))
    assert (position.best_value, position.best_rows) == (0.5, 100)
    assert position.highest_value == pytest.approx(0.55)  # the first weights were 0.05 better on the rows of both


@given(st.lists(st.tuples(st.integers(1, 700), st.floats(0, 1), st.floats(0, 0.2), st.floats(0, 3)), max_size=12))
def test_no_kept_weights_were_measured_on_half_of_what_any_later_ones_were(validations):
    position = Position()
    for rows, value, margin, nats in validations:
        position.step += 1
        common = value / 2  # on the rows of the best: lower than any before, most of the time
        improved = position.record(finding(nats, 1), verdict(value, common, rows, margin=margin))
        assert improved == (position.best_step == position.step)
    if validations:
        assert 2 * position.best_rows > max(rows for rows, *_ in validations)
        assert position.highest_value >= position.best_value


def verdict_in(values, rows, monkeypatch, seconds):
    """The verdict on `rows` rows in `seconds`, where each answer takes one second."""
    clock = [0.0]
    monkeypatch.setattr(validation, "monotonic", lambda: clock[0])

    def answer(model, places):
        clock[0] += len(places)
        return [values[place] for place in places]

    def compare(places, answers, step):
        assert answers == [values[place] for place in places]
        return MetricValue("share", sum(answers) / len(answers))

    metric, alone = ValidationMetric(rows, answer, compare), Processes(0, 1, torch.device("cpu"))
    return validation.Validation(ToyModel(), held_out, metric, None, None, None, None, alone).verdict(
        Position(step=1), seconds
    )


def test_a_partial_validation_has_its_standard_error_as_margin(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    values = (torch.rand(2000, generator=generator) < 0.8).float().tolist()
    part = verdict_in(values, 2000, monkeypatch, seconds=500.0)
    assert (400 <= part.rows < 1000, part.whole) == (True, False)
    share = part.metric.value
    assert part.margin == pytest.approx((share * (1 - share) / part.rows) ** 0.5, rel=0.5)  # ten parts: ±24%
    assert verdict_in(values, 2000, monkeypatch, seconds=9999.0).margin == 0.0


def test_the_last_validation_of_all_rows_replaces_a_lucky_first_one_of_eight(tmp_path, monkeypatch):
    clock = [0.0]
    for module in (duration, loop, report, validation):
        monkeypatch.setattr(module, "monotonic", lambda: clock[0])

    class Stream(ToyStream):
        def at(self, step):
            clock[0] += 0.1
            return super().at(step)

    def answer(model, rows):
        clock[0] += 0.03 * len(rows)
        return [0] * len(rows)

    def compare(rows, answers, step):
        return MetricValue("accuracy", 0.875 if step <= 40 and len(rows) <= 8 else 0.5 + step / 10_000)

    metric = ValidationMetric(60, answer, compare)
    result = train(ToyModel(), Stream(), held_out, options(budget=40.0), tmp_path, metric=metric, began=0.0)
    records = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    rows = {record["step"]: record["rows"] for record in records if record["event"] == "validation"}
    assert rows[40] == min(rows.values()) == 8
    assert (result.best_step, result.best_rows) == (max(rows), 60)
