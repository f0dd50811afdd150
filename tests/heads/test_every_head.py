"""What every head promises: draws from its generator alone, float32 inside, broadcasting, expansion and stacking."""

from functools import cache

import pytest
import torch
from mixture_models import TinyLevels, TinyPixels, TinyReals
from torch import distributions

from chainrule.heads import (
    Bernoulli,
    Categorical,
    DiagonalNormal,
    DiscretizedLogisticMixture,
    GaussianMixture,
    IntegerLogisticMixture,
    PixelLogisticMixture,
    StudentTMixture,
)
from chainrule.heads._adapter import head_of
from chainrule.heads._computed_categorical import AdaptiveCategorical, CategoricalMean


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def mean(outputs):
    first, second = outputs.chunk(2, -1)
    return CategoricalMean([Categorical(first), Categorical(second)])


@cache
def clusters(dtype):
    """A shortlist of 3 symbols and two more in a cluster, of 4 features."""
    random = seeded(9)
    return [torch.randn(*shape, generator=random).to(dtype) for shape in ((4, 4), (4,), (2, 4), (2, 2), (2,))]


def adaptive(outputs):
    weight, bias, *tail = clusters(outputs.dtype)
    return AdaptiveCategorical(outputs, (weight, bias), [tuple(tail)])


# How many outputs of a network it takes, and how they become a head.
HEADS = {
    "Categorical": (5, Categorical),
    "AdaptiveCategorical": (4, adaptive),
    "CategoricalMean": (10, mean),
    "Bernoulli": (1, lambda outputs: Bernoulli(outputs.squeeze(-1))),
    "DiscretizedLogisticMixture": (9, lambda outputs: DiscretizedLogisticMixture.from_parameters(outputs, 5)),
    "IntegerLogisticMixture": (9, IntegerLogisticMixture.from_parameters),
    "PixelLogisticMixture": (20, lambda outputs: PixelLogisticMixture.from_parameters(outputs, 3, 5)),
    "GaussianMixture": (9, GaussianMixture.from_parameters),
    "StudentTMixture": (12, StudentTMixture.from_parameters),
    "DiagonalNormal": (6, lambda outputs: DiagonalNormal(*outputs.chunk(2, -1))),
    "Normal of torch": (1, lambda outputs: head_of(distributions.Normal(outputs.squeeze(-1), 1.0))),
    "Categorical of torch": (5, lambda outputs: head_of(distributions.Categorical(logits=outputs))),
    "Bernoulli of torch": (1, lambda outputs: head_of(distributions.Bernoulli(logits=outputs.squeeze(-1)))),
    "Independent of torch": (
        2,
        lambda outputs: head_of(distributions.Independent(distributions.Normal(outputs, 1), 1)),
    ),
}
OF_TORCH = [name for name in HEADS if name.endswith("of torch")]
DENSITIES = ("GaussianMixture", "StudentTMixture", "DiagonalNormal", "PixelLogisticMixture", "Normal of torch")
every_head = pytest.mark.parametrize("name", HEADS)
own_heads = pytest.mark.parametrize("name", [name for name in HEADS if name not in OF_TORCH])


def make(name, *shape, seed=0, gradient=False):
    size, head = HEADS[name]
    return head(torch.randn(*shape, size, generator=seeded(seed), dtype=torch.float64, requires_grad=gradient))


@every_head
@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_draws_come_from_the_generator_alone_in_the_shape_asked_for(name, shape):
    head = make(name, 4, 8, gradient=True)
    before = torch.get_rng_state()
    first, other = (head.sample(shape, generator=seeded(seed)) for seed in (0, 1))
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)
    assert torch.equal(head.sample(shape, generator=seeded()), first)
    assert not torch.equal(first, other)
    assert first.shape == (*shape, 4, 8, *head.event_shape)
    assert not first.requires_grad


@own_heads
@pytest.mark.parametrize("shape", [(), (3,), (2, 1), (2, 3), (4, 2, 3)])
def test_values_of_any_shape_and_type_are_broadcast_and_heads_expanded(name, shape):
    head, value = make(name, 2, 3), make(name, *shape, seed=1).sample(generator=seeded())
    batch = (*shape[:-2], 2, 3)
    whole = value.expand(*batch, *head.event_shape)
    expected = head.expand(batch).log_prob(whole)
    assert expected.shape == batch
    torch.testing.assert_close(head.log_prob(value), expected, rtol=1e-12, atol=1e-12)
    if name not in DENSITIES:
        symbol = torch.ones(shape)
        for dtype in (torch.bool, torch.uint8, torch.long):
            assert torch.equal(head.log_prob(symbol.to(dtype)), head.log_prob(symbol))


@own_heads
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_worked_on_in_float32(name, dtype):
    size, head = HEADS[name]
    outputs = torch.randn(40, size, generator=seeded()).to(dtype).requires_grad_()
    value = head(outputs.detach().float()).sample(generator=seeded())
    with torch.autocast("cpu", torch.bfloat16):
        terms = head(outputs).log_prob(value)
    assert terms.dtype == torch.float32
    if name != "AdaptiveCategorical":  # whose scores are products, taken in half precision
        torch.testing.assert_close(terms, head(outputs.float()).log_prob(value))
    assert head(outputs).sample(generator=seeded()).dtype in (torch.float32, torch.long)
    terms.sum().backward()
    assert outputs.grad.isfinite().all()


@every_head
def test_heads_side_by_side_are_one_head(name):
    parts = [make(name, 2, seed=seed) for seed in range(4)]
    joined = type(parts[0]).stacked(parts)
    value = torch.stack([part.sample(generator=seeded()) for part in parts], 1)
    assert (joined.batch_shape, joined.event_shape) == ((2, 4), parts[0].event_shape)
    assert isinstance(joined, type(parts[0])) or name in ("Normal of torch", "Independent of torch")
    expected = torch.stack([part.log_prob(value[:, t]) for t, part in enumerate(parts)], 1)
    torch.testing.assert_close(joined.log_prob(value), expected, rtol=1e-12, atol=1e-12)
    assert joined.sample((5,), generator=seeded()).shape == (5, *value.shape)


@pytest.mark.parametrize(("name", "symbols"), [("Bernoulli", 2), ("Categorical", 5), ("DiscretizedLogisticMixture", 5)])
def test_supports_are_listed(name, symbols):
    assert make(name, 2).enumerate_support(expand=False).flatten().tolist() == list(range(symbols))


@pytest.mark.parametrize("name", DENSITIES)
@pytest.mark.parametrize("filters", [{"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.5}])
def test_densities_are_not_filtered(name, filters):
    with pytest.raises(ValueError, match=f"need a categorical distribution, got {name.removesuffix(' of torch')}"):
        make(name, 2).filtered(**filters)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (TinyLevels, torch.randint(6, (2, 5))),
        (TinyReals, torch.randn(2, 5)),
        (TinyPixels, torch.randint(4, (2, 6))),  # channel by channel
    ],
)
def test_a_model_with_a_mixture_keeps_the_contract(keeps_contract, model, x):
    report = keeps_contract(model(), x)
    assert all(result.applies for result in report.results), f"\n{report}"


OWN = Categorical(torch.zeros(4, 3))
KINDS = [
    OWN,
    distributions.Categorical(logits=torch.zeros(4, 3)),
    distributions.Normal(torch.zeros(4), 1.0),
    distributions.Bernoulli(torch.full((4,), 0.5)),
    distributions.Independent(distributions.Normal(torch.zeros(4, 2), 1.0), 1),
    distributions.LogNormal(torch.zeros(4), 1.0),
]


def test_without_a_generator_the_global_one_is_used():
    torch.manual_seed(1)
    first = head_of(distributions.Normal(torch.zeros(4), 1.0)).sample((3,))
    torch.manual_seed(1)
    assert torch.equal(first, distributions.Normal(torch.zeros(4), 1.0).sample((3,)))


@pytest.mark.parametrize("kind", [Categorical, lambda logits: distributions.Categorical(logits=logits)])
def test_categorical_draws_are_filtered(kind):
    die = head_of(kind(torch.tensor([[3.0, 2.0, 1.0]]).expand(300, 3)))
    assert set(die.filtered(temperature=0.0).sample().tolist()) == {0}
    assert set(die.filtered(top_k=2).sample().tolist()) == {0, 1}
    assert set(die.filtered(top_p=0.1).sample().tolist()) == {0}


def test_a_head_is_itself_and_others_keep_their_densities_and_supports():
    assert head_of(OWN) is OWN
    for distribution in KINDS[1:]:
        head, x = head_of(distribution), distribution.sample()
        torch.testing.assert_close(head.log_prob(x), distribution.log_prob(x))
        assert (head.batch_shape, head.event_shape) == (distribution.batch_shape, distribution.event_shape)
        assert repr(head.support) == repr(distribution.support)
        assert head.has_enumerate_support == distribution.has_enumerate_support
    counts = distributions.Binomial(3, torch.tensor([0.2, 0.9]))
    assert torch.equal(head_of(counts).enumerate_support(), counts.enumerate_support())


def test_symbols_have_a_table_and_densities_have_none():
    coin = distributions.Bernoulli(probs=torch.tensor([0.75, 0.5]))
    torch.testing.assert_close(head_of(coin).categorical().probs, torch.tensor([[0.25, 0.75], [0.5, 0.5]]))
    assert head_of(distributions.Normal(torch.zeros(2), 1.0)).categorical() is None


def test_probabilities_that_torch_was_given_are_kept_to_the_last():
    """torch bounds the logits of given probabilities: an impossible symbol was drawn once in some ten million times."""
    probs = torch.tensor([0.5, 0.5, 0.0], requires_grad=True)
    head = head_of(distributions.Categorical(probs=probs))
    assert head.log_prob(torch.arange(3)).tolist()[2] == -torch.inf
    head.log_prob(torch.tensor(0)).backward()
    assert probs.grad is not None
    assert probs.grad.isfinite().all()
    coins = torch.tensor([1e-12, 0.0, 1.0, 0.3], dtype=torch.float64)
    torch.testing.assert_close(head_of(distributions.Bernoulli(probs=coins)).probs, coins, rtol=1e-12, atol=0)
