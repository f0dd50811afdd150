"""The softmax over tags is the conditional random field without scores of neighbours."""

import pytest
import torch
from tag_enumeration import LENGTHS, drawn

from chainrule.heads import LinearChainCRF
from chainrule.heads._joint import IndependentPixels
from chainrule.heads._linear_chain_crf import IndependentTags, TagSequences

B, T, K = 5, 4, 3


@pytest.fixture
def emissions():
    scores = drawn(B, T, K)
    return scores.masked_fill((torch.arange(T) >= LENGTHS[:, None]).unsqueeze(2), torch.nan)


def test_it_equals_a_field_whose_transitions_are_zero(emissions):
    head, field = IndependentTags(K), LinearChainCRF(K)
    tags = torch.randint(K, (B, T), generator=torch.Generator().manual_seed(0))
    tags = tags.masked_fill(torch.arange(T) >= LENGTHS[:, None], -9)
    close = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(
        head.log_prob(tags, emissions, LENGTHS), field.log_prob(tags, emissions, LENGTHS), **close
    )
    torch.testing.assert_close(head.marginals(emissions, LENGTHS), field.marginals(emissions, LENGTHS), **close)
    assert torch.equal(head.decode(emissions, LENGTHS), field.decode(emissions, LENGTHS))
    for ours, theirs in zip(
        head.decode_n_best(emissions, LENGTHS, n=4), field.decode_n_best(emissions, LENGTHS, n=4), strict=True
    ):
        torch.testing.assert_close(ours, theirs.detach())


def test_it_differs_from_a_field_with_transitions(emissions):
    field = LinearChainCRF(K).double()
    field.transitions.data = drawn(K, K)
    assert (IndependentTags(K).marginals(emissions, LENGTHS) - field.marginals(emissions, LENGTHS)).abs().max() > 0.1


def test_draws_follow_the_marginals_and_stop_at_the_end(emissions):
    head = IndependentTags(K)
    found = TagSequences(head, emissions, LENGTHS).sample((3000,), generator=torch.Generator().manual_seed(0))
    shares = torch.stack([(found == tag).double().mean(0) for tag in range(K)], 2)
    # a share of 3000 draws has a standard deviation of at most 0.01
    torch.testing.assert_close(shares, head.marginals(emissions, LENGTHS), rtol=0, atol=0.04)
    assert ((found == -1) == (torch.arange(T) >= LENGTHS[:, None])).all()


def test_half_precision_scores_are_summed_in_single():
    emissions = drawn(1, 400, K).to(torch.bfloat16)
    tags = torch.zeros(1, 400, dtype=torch.long)
    assert IndependentTags(K).log_prob(tags, emissions).dtype == torch.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda head, e: head.decode(e[..., :2]), "emissions: expected shape"),
        (lambda head, e: head.log_prob(torch.full((B, T), K), e), r"tags: expected values in \[0, 3\)"),
        (lambda head, e: head.log_prob(torch.zeros(B, T), e), "tags: expected integers"),
        (lambda head, e: head.marginals(e, torch.tensor([9] * B)), "lengths: expected values in"),
        (lambda head, e: head.sample(e, torch.tensor([1])), "lengths: expected 5 integers"),
        (lambda head, e: head.decode_n_best(e, n=0), "n: expected an integer >= 1"),
        (lambda head, e: IndependentTags(0), "num_tags: expected an integer >= 1"),
    ],
)
def test_wrong_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(IndependentTags(K), drawn(B, T, K))


@pytest.mark.parametrize(
    ("kind", "channels", "levels"), [("bernoulli", 1, 2), ("categorical", 2, 3), ("mixture", 1, 4), ("mixture", 3, 4)]
)
def test_an_image_of_one_pixel_adds_up_to_one_and_its_mean_is_that_of_draws(kind, channels, levels):
    count = IndependentPixels.num_parameters(kind, channels, levels, 2)
    image = IndependentPixels.from_parameters(kind, torch.randn(1, count, 1, 1).double(), channels, levels)
    assert image.batch_shape == (1,)
    assert image.event_shape == (channels, 1, 1)
    values = torch.cartesian_prod(*[torch.arange(levels)] * channels).view(-1, channels, 1, 1)
    probabilities = image.log_prob(values).exp()
    torch.testing.assert_close(probabilities.sum(), torch.tensor(1.0).double())
    first = (probabilities.view(-1, 1, 1, 1) * values).sum(0)[:1]
    torch.testing.assert_close(image.mean[0, :1], first)  # later channels of a mixture depend on the first
    drawn = image.sample((4000,), generator=torch.Generator().manual_seed(0))[:, 0]
    assert drawn.dtype == torch.long
    torch.testing.assert_close(drawn[:, :1].double().mean(0), first, atol=0.1, rtol=0)  # 5 standard errors of 1.2 / 63


def test_log_prob_is_the_sum_over_pixels_and_channels():
    image = IndependentPixels.from_parameters("categorical", torch.randn(2, 2 * 3, 4, 5), 2, 3)
    x = torch.randint(3, (2, 2, 4, 5))
    torch.testing.assert_close(image.log_prob(x), image.pixels.log_prob(x).flatten(1).sum(1))
