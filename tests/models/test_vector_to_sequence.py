"""One-to-many: a sequence from a vector, behind the contract."""

import pytest
import torch

from chainrule.models import VectorToSequence
from chainrule.testing import check_model


@pytest.mark.parametrize("options", [{}, {"cell": "gru", "num_layers": 2, "embedding_size": 3}, {"cell": "rnn"}])
def test_keeps_the_contract(options):
    model = VectorToSequence(vector_size=3, vocab_size=4, hidden_size=8, **options)
    report = check_model(model, torch.randint(4, (3, 6)), torch.randn(3, 3), torch.tensor([6, 2, 4]))
    assert report.ok, str(report)


def test_a_vector_that_is_not_read_is_seen_by_the_check():
    model = VectorToSequence(vector_size=3, vocab_size=4, hidden_size=8)
    model.begin.requires_grad_(False).weight.zero_()
    report = check_model(model, torch.randint(4, (3, 6)), torch.randn(3, 3))
    assert not {result.name: result.ok for result in report.results}["full_context"]


def test_it_learns_which_sequence_belongs_to_which_vector():
    vectors, words = torch.eye(3), torch.tensor([[0, 1, 2, 3], [3, 3, 0, 0], [2, 0, 2, 0]])
    model = VectorToSequence(vector_size=3, vocab_size=4, hidden_size=16)
    optimiser = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(80):
        optimiser.zero_grad()
        (-model.log_prob(words, vectors).mean()).backward()
        optimiser.step()
    assert torch.equal(model.sample(3, vectors, length=4, temperature=0), words)


@pytest.mark.parametrize("context", [None, torch.zeros(3, 2), torch.zeros(2, 3), {"vector": torch.zeros(3, 3)}])
def test_contexts_that_do_not_fit_are_named(context):
    with pytest.raises(ValueError, match=r"^context"):
        VectorToSequence(vector_size=3, vocab_size=4, hidden_size=8)(torch.zeros(3, 2, dtype=torch.long), context)


def test_arguments_out_of_range_are_named():
    with pytest.raises(ValueError, match=r"^vector_size"):
        VectorToSequence(vector_size=0, vocab_size=4)
