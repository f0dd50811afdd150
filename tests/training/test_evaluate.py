import pytest
import torch
from training_toy import SYMBOLS, ToyBatch, ToyModel, ToyStream, held_out

from chainrule._base import AutoregressiveModel
from chainrule.training import evaluate


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
