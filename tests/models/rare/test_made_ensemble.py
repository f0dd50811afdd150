"""An ensemble over orders and masks is the average of its members' probabilities."""

import itertools

import pytest
import torch

from chainrule.layers import raster_orders
from chainrule.models import MADE
from chainrule.models.rare import MADEEnsemble
from chainrule.testing import check_model

EVERY = torch.tensor(list(itertools.product([0, 1], repeat=4)))


def strong(ensemble):
    torch.manual_seed(0)
    for parameter in ensemble.parameters():
        torch.nn.init.normal_(parameter, std=1.5)
    return ensemble.double()


def make(num_masks=5, orders=None, **options):
    made = MADE(4, options.pop("hidden_sizes", [9]), **options)
    return strong(MADEEnsemble(made, num_masks, generator=torch.Generator().manual_seed(0), orders=orders))


@pytest.mark.parametrize("orders", [None, [range(4)], raster_orders(2, 2)])
@pytest.mark.parametrize("hidden_sizes", [[], [9], [9, 6]])
def test_probabilities_of_all_rows_add_up_to_one(orders, hidden_sizes):
    ensemble = make(orders=orders, hidden_sizes=hidden_sizes)
    assert float(ensemble.log_prob(EVERY).exp().sum().detach()) == pytest.approx(1, abs=1e-12)


def test_it_averages_probabilities_and_the_average_of_logits_would_be_no_model():
    ensemble = make()
    members = [ensemble.member(index) for index in range(5)]
    expected = torch.stack([member.log_prob(EVERY).exp() for member in members]).mean(0).log()
    torch.testing.assert_close(ensemble.log_prob(EVERY), expected, rtol=1e-12, atol=1e-12)
    logits = torch.stack([member(EVERY).logits for member in members]).mean(0)
    wrong = torch.distributions.Bernoulli(logits=logits).log_prob(EVERY.double()).sum(1).exp().sum().detach()
    assert abs(float(wrong) - 1) > 1e-3


def test_members_differ_in_their_order_or_only_in_their_connections():
    orders = make().orders
    assert len({tuple(order.tolist()) for order in orders}) > 1
    same = make(orders=[range(4)])
    assert torch.equal(same.orders, torch.arange(4).expand(5, 4))
    assert not torch.equal(same.member(0).hidden[0].mask, same.member(1).hidden[0].mask)
    assert make(orders=[[3, 1, 0, 2], [0, 1, 2, 3]]).orders[:3].tolist() == [[3, 1, 0, 2], [0, 1, 2, 3], [3, 1, 0, 2]]


def test_each_member_keeps_the_contract_and_shares_the_weights():
    ensemble = make(direct=True)
    member = ensemble.member(2)
    assert member.output.weight is ensemble.made.output.weight
    assert check_model(member, EVERY[:3]).ok


@pytest.mark.parametrize("context", [None, torch.tensor([0]), torch.tensor([1, 0]).repeat(10_000)])
def test_samples_have_the_frequencies_of_log_prob(context):
    ensemble = make(context_size=None if context is None else 2)
    drawn = ensemble.sample(20_000, context, generator=torch.Generator().manual_seed(3))
    counts = torch.bincount((drawn.long() * torch.tensor([8, 4, 2, 1])).sum(1), minlength=16)
    contexts = [None] if context is None else [label.expand(16) for label in context[:2].split(1)]
    probs = torch.stack([ensemble.log_prob(EVERY, label).exp() for label in contexts]).mean(0).detach()
    expected = 20_000 * probs
    assert ((counts - expected) ** 2 / expected).sum() < 50  # chi-square, 15 degrees: exceeded once in 80,000


def test_a_seed_fixes_the_sample_and_the_world_does_not_move():
    ensemble, before = make(), torch.get_rng_state()
    first, again, other = (ensemble.sample(50, generator=torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_saved_ensemble_is_the_ensemble_and_holds_the_weights_once():
    ensemble = make()
    saved = ensemble.state_dict()
    assert sum(name.endswith("weight") for name in saved) == 2
    other = strong(MADEEnsemble(MADE(4, [9]), 5, generator=torch.Generator().manual_seed(9)))
    other.load_state_dict(saved)
    assert torch.equal(other.log_prob(EVERY), ensemble.log_prob(EVERY))


def test_training_one_member_moves_all():
    ensemble = make(num_masks=2)
    before = ensemble.member(1).log_prob(EVERY).detach()
    (-ensemble.member(0).log_prob(EVERY).mean()).backward()
    with torch.no_grad():
        for parameter in ensemble.parameters():
            parameter -= 0.1 * parameter.grad
    assert not torch.equal(before, ensemble.member(1).log_prob(EVERY))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        *((lambda orders=orders: make(orders=orders), "order") for orders in ([], [[0, 1, 2]], [[0, 1, 1, 2]])),
        (lambda: make(num_masks=0), "num_masks: expected an integer >= 1, got 0"),
        (lambda: make(num_masks=-1), "num_masks: expected an integer >= 1, got -1"),
        (lambda: make().sample(0), "n: expected an integer >= 1, got 0"),
    ],
)
def test_arguments_out_of_range_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
