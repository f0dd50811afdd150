"""A language model of counts: the contract, and the probabilities of its tables."""

import pytest
import torch

from chainrule.models import NgramLM


def text(size=600):
    generator = torch.Generator().manual_seed(0)
    noise = torch.randint(5, (size,), generator=generator)
    return torch.where(noise > 1, torch.arange(size) % 5, noise)


def model(order=3, **options):
    return NgramLM.fit(text(), 5, order, dtype=torch.float64, **options)


@pytest.mark.slow
@pytest.mark.parametrize("order", [2, 3, 5])
def test_contract(keeps_contract, order):
    keeps_contract(model(order), text(27).view(3, 9), lengths=torch.tensor([9, 2, 4]))


def test_probabilities_are_those_of_the_tables():
    ngrams, x = model().ngrams, text(24).view(3, 8)
    contexts, _ = ngrams.read(x, ngrams.initial_contexts(3))
    assert torch.equal(NgramLM(ngrams)(x).probs, ngrams.probs(contexts))
    torch.testing.assert_close(NgramLM(ngrams).log_prob(x), ngrams.log_prob(contexts, x).sum(1))


def test_lines_begin_with_a_context_of_their_own(keeps_contract):
    lines = torch.cat([torch.tensor([5, 2]), text(200), torch.tensor([5, 2, 1, 5, 2, 0, 5, 2, 1])])
    of_lines = NgramLM.fit(lines, 5, 3, lines=True, dtype=torch.float64)
    assert of_lines(torch.tensor([[0]])).probs[0, 0].argmax() == 2  # all of them begin so
    assert model()(torch.tensor([[0]])).probs[0, 0].max() < 0.4
    keeps_contract(of_lines, text(27).view(3, 9), lengths=torch.tensor([9, 2, 4]))


def test_it_sees_its_last_symbols():
    assert model(4).useful_prefix(1) == 3
    assert model(4).visible_past(8)[7].nonzero().flatten().tolist() == [4, 5, 6]


def test_a_condition_is_refused():
    with pytest.raises(ValueError, match="context"):
        model()(text(6).view(2, 3), context=torch.zeros(2))
