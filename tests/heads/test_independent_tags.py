"""The softmax over tags is the conditional random field without scores of neighbours."""

import pytest
import torch
from tag_enumeration import LENGTHS, drawn

from chainrule.heads import IndependentTags, LinearChainCRF, TagSequences

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
