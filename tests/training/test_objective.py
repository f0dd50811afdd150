import pytest
import torch
from training_toy import SYMBOLS, ToyModel

from chainrule.training import Objective


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
