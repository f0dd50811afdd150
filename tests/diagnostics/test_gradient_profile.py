import pytest
import torch
from torch import nn

from chainrule.diagnostics import gradient_profile
from chainrule.models import Ensemble, RecurrentLM


def test_it_is_the_norm_of_what_autograd_gives_at_each_step_last_first() -> None:
    torch.manual_seed(0)
    layer, x = nn.RNN(2, 3, batch_first=True).double(), torch.randn(2, 6, 2, dtype=torch.float64)
    h = [torch.zeros(2, 3, dtype=torch.float64)]
    for t in range(6):
        weight_ih, weight_hh, bias_ih, bias_hh = layer.parameters()
        h.append(torch.tanh(x[:, t] @ weight_ih.T + h[-1] @ weight_hh.T + bias_ih + bias_hh))
    gradients = torch.autograd.grad(h[-1].square().sum(), h[1:])
    (profile,) = gradient_profile(layer, x)
    torch.testing.assert_close(profile, torch.stack([g.norm(dim=-1) for g in gradients[::-1]], 1))


def test_a_row_is_read_from_its_own_end_and_is_zero_beyond_its_beginning() -> None:
    torch.manual_seed(0)
    model = RecurrentLM(5, hidden_size=4, num_layers=2).double()
    x, state = torch.randint(5, (2, 7)), tuple(torch.randn(2, 2, 4, dtype=torch.float64) for _ in range(2))
    whole = gradient_profile(model, x, torch.tensor([4, 7]), state, torch.tensor([1, 2]))
    alone = gradient_profile(model, x[:1, :4], None, tuple(part[:1] for part in state), torch.tensor([1]))
    for layer, expected in zip(whole, alone, strict=True):
        torch.testing.assert_close(layer[:1, :4], expected)
        assert not layer[0, 4:].any()
        assert layer[1].all()


def test_of_an_ensemble_the_first_member_is_looked_at() -> None:
    torch.manual_seed(0)
    model = Ensemble([RecurrentLM(5, hidden_size=4).double() for _ in range(2)])
    x, previous = torch.randint(5, (2, 7)), torch.tensor([1, 2])
    state = model.unroll(x, model.initial_state(2))[1]
    first = model.members[0]
    assert isinstance(first, RecurrentLM)
    torch.testing.assert_close(
        gradient_profile(model, x, None, state, previous), gradient_profile(first, x, None, state[0], previous)
    )
    torch.testing.assert_close(gradient_profile(model, x), gradient_profile(first, x))


def test_a_model_without_recurrence_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a recurrent layer"):
        gradient_profile(nn.Linear(2, 2), torch.zeros(1, 2, 2))
