"""What is minimised and what is measured, in which units."""

import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from training_toy import SYMBOLS, ToyBatch, ToyModel, ToyStream, held_out, options

from chainrule._base import AutoregressiveModel
from chainrule.training import Evaluation, Findings, Objective, evaluate, read_metrics, train
from chainrule.training._duration import Position
from chainrule.training._evaluate import per_element, perplexity
from chainrule.training._metrics import Metrics


def test_the_likelihood_of_chunks_is_that_of_the_whole_rows() -> None:
    model = ToyModel().double().eval()
    stream = ToyStream(batch_size=2, length=20)
    chunks = [stream.at(step) for step in range(stream.steps_per_epoch)]
    whole = -model.log_prob(torch.cat([chunk.x for chunk in chunks], 1)).sum().item()
    evaluation = evaluate(model, chunks)
    assert evaluation.elements == 240
    assert evaluation.nats == pytest.approx(whole, rel=1e-6)  # the nats of a chunk are summed in float32


def test_every_element_weighs_the_same_whatever_its_batch() -> None:
    model = ToyModel()
    x, lengths = torch.randint(SYMBOLS, (3, 6)), torch.tensor([6, 1, 3])
    together = evaluate(model, [ToyBatch(x, lengths)])
    apart = evaluate(model, [ToyBatch(x[:1], lengths[:1]), ToyBatch(x[1:], lengths[1:])])
    assert together.elements == apart.elements == 10
    assert together.nats == pytest.approx(apart.nats, rel=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_evaluation_is_without_dropout_and_leaves_mode_and_gradients_alone(training: bool) -> None:
    model = ToyModel(dropout=0.5).train(training)
    assert evaluate(model, held_out()) == evaluate(model, held_out())
    assert model.training is training
    assert model.dropout.training is training
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_model_is_put_back_into_training_when_the_data_fails() -> None:
    model: AutoregressiveModel = ToyModel().train()
    with pytest.raises(IndexError):
        evaluate(model, [ToyBatch(torch.full((1, 3), 99))])
    assert model.training


def test_no_data_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one element"):
        evaluate(ToyModel(), [])


def test_the_state_crosses_a_chunk_boundary_and_gradients_do_not() -> None:
    model = ToyModel(dropout=0.0)
    objective = Objective(model)
    x = torch.randint(SYMBOLS, (2, 6))
    first, state = objective(x[:, :3])
    assert not state["h"].requires_grad
    second, _ = objective(x[:, 3:], None, x[:, 2], state)
    torch.testing.assert_close(first + second, -model.log_prob(x).sum())


def test_rows_with_lengths_are_whole_sequences_and_padding_is_not_read() -> None:
    model = ToyModel(dropout=0.0)
    x = torch.randint(SYMBOLS, (2, 4))
    padded = torch.cat([x, torch.full((2, 2), 99)], 1)
    nats, state = Objective(model)(padded, torch.tensor([4, 4]))
    assert state is None
    torch.testing.assert_close(nats, -model.log_prob(x).sum())


def test_rows_that_begin_anew_forget_the_state() -> None:
    objective = Objective(ToyModel(dropout=0.0))
    x = torch.randint(SYMBOLS, (2, 4))
    _, state = objective(x)
    torch.testing.assert_close(objective(x, None, None, state)[0], objective(x)[0])


def test_half_precision_multiplies_in_bfloat16_and_keeps_weights_and_likelihood_in_float32() -> None:
    model = ToyModel(hidden_size=32, dropout=0.0)
    x = torch.randint(SYMBOLS, (4, 10))
    full, _ = Objective(model)(x)
    half, _ = Objective(model, torch.bfloat16)(x)
    half.backward()
    assert half.dtype == torch.float32
    assert {weight.grad.dtype for weight in model.parameters() if weight.grad is not None} == {torch.float32}
    assert half.item() != full.item()
    assert half.item() == pytest.approx(full.item(), rel=1e-2)  # bfloat16 keeps 8 bits, 2e-3 each


def test_training_maximises_the_models_own_objective_and_evaluation_the_likelihood() -> None:
    class Smoothed(ToyModel):
        def training_objective(self, x, context=None, lengths=None):
            return 0.5 * self.log_prob(x, context, lengths)

    model, x = Smoothed(dropout=0.0), torch.randint(SYMBOLS, (2, 4))
    objective, exact = Objective(model), -model.log_prob(x).sum()
    torch.testing.assert_close(objective(x, whole=True)[0], 0.5 * exact)
    model.eval()
    torch.testing.assert_close(objective(x, whole=True)[0], exact)


def write(metrics: Metrics, steps: range) -> None:
    for step in steps:
        metrics.step(step, 10 * step, Evaluation(5.0, 10), 1.0, 0.1)
        if step % 2 == 0:
            metrics.validation(step, Evaluation(5.0, 10), best=False)
    metrics.close("finished")


def test_lines_beyond_the_position_are_dropped_on_resume(tmp_path: Path) -> None:
    write(Metrics(tmp_path, Position()), range(1, 5))
    whole = (tmp_path / "metrics.jsonl").read_text()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"event": "step", "st')  # a killed process's last line
    write(Metrics(tmp_path, Position(step=2, validated=2)), range(3, 5))
    assert (tmp_path / "metrics.jsonl").read_text() == whole


def test_a_validation_that_the_checkpoint_does_not_know_is_dropped(tmp_path: Path) -> None:
    write(Metrics(tmp_path, Position()), range(1, 5))
    Metrics(tmp_path, Position(step=4, validated=2)).close("finished")
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [("validation" in line) for line in lines] == [False, False, True, False, False]


def test_a_new_run_begins_with_empty_files(tmp_path: Path) -> None:
    write(Metrics(tmp_path, Position()), range(1, 5))
    (tmp_path / "timings.jsonl").write_text("{}\n")
    Metrics(tmp_path, Position()).close("finished")
    assert (tmp_path / "metrics.jsonl").read_text() == (tmp_path / "timings.jsonl").read_text() == ""


def test_findings_are_recorded_at_each_validation_and_warn_from_the_second_on(tmp_path: Path) -> None:
    def observe(model: ToyModel) -> Findings:
        assert not model.training
        return Findings({"size": model.output.weight.square().mean().item()}, "shown", "it collapsed")

    train(ToyModel(), ToyStream(), held_out, options(steps=8), tmp_path, observe=observe, progress=False)
    train(ToyModel(), ToyStream(), held_out, options(), tmp_path, observe=observe, progress=False, resume=True)
    records = [record for record in read_metrics(tmp_path / "metrics.jsonl") if record["event"] == "validation"]
    assert [record["step"] for record in records] == [4, 8, 12, 16]
    assert len({record["size"] for record in records}) == 4
    assert [record.get("warning") for record in records] == [None, *["it collapsed"] * 3]


nats = st.floats(0, 1e6)
counts = st.integers(1, 10**9)


@given(nats, counts)
def test_bits_are_nats_over_ln_2(total: float, elements: int) -> None:
    evaluation = Evaluation(total, elements)
    assert evaluation.bits_per_element * math.log(2) == pytest.approx(total / elements)


@given(st.integers(2, 10**6), st.integers(1, 1000))
def test_perplexity_of_a_uniform_choice_is_the_number_of_symbols(symbols: int, elements: int) -> None:
    assert Evaluation(elements * math.log(symbols), elements).perplexity == pytest.approx(symbols)


def test_a_perplexity_beyond_the_largest_double_is_infinite() -> None:
    assert perplexity(1e6, 1) == math.inf


def test_nothing_has_no_average() -> None:
    with pytest.raises(ValueError, match="elements: expected at least 1"):
        per_element(0.0, 0)
