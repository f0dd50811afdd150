"""Weights of classifiers and their temperature: the likelihood of the rows that they are fitted to never falls."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.data import Batch
from chainrule.models import SequenceClassifier
from chainrule.models._label_calibration import fitted_shares, fitted_temperature


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(2, 4), st.floats(0.05, 20))
@settings(max_examples=40, deadline=None)
def test_the_likelihood_never_falls(seed, rows, classes, scale):
    generator = torch.Generator().manual_seed(seed)
    log_probs = (scale * torch.randn(3, rows, classes, generator=generator).double()).log_softmax(-1)
    labels = torch.randint(classes, (rows,), generator=generator)
    of_labels = log_probs[:, torch.arange(rows), labels]
    shares = fitted_shares(of_labels)
    mean = torch.logsumexp(log_probs + shares.log().view(3, 1, 1), 0)
    equal = torch.logsumexp(of_labels, 0) - torch.tensor(3.0).double().log()
    right = mean[torch.arange(rows), labels].sum()
    assert shares.sum() == pytest.approx(1)
    assert right >= equal.sum() - 1e-9
    tempered = (mean / fitted_temperature(mean, labels)).log_softmax(1)
    assert tempered[torch.arange(rows), labels].sum() >= right - 1e-9


def test_a_temperature_is_found_again():
    generator = torch.Generator().manual_seed(0)
    log_probs = torch.randn(20_000, 3, generator=generator).double().log_softmax(1)
    labels = (log_probs / 1.7).softmax(1).multinomial(1, generator=generator).squeeze(1)
    assert fitted_temperature(log_probs, labels) == pytest.approx(1.7, rel=0.05)  # two standard errors are 3%


@pytest.mark.parametrize("several", [False, True])
def test_calibration_makes_held_out_rows_more_probable_and_leaves_empty_ones(several):
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    model = SequenceClassifier(
        3, vocab_size=5, embedding_size=4, hidden_size=4, ngram_order=2, tfidf=True, several=several
    ).double()
    x = torch.randint(5, (80, 6), generator=generator)
    lengths = torch.randint(0, 7, (80,), generator=generator)
    labels = torch.stack([x[:, 0] == 1, x[:, 1] > 2, x[:, 2] == 0], 1).long() if several else x[:, 0] % 3
    context = {"inputs": x, "lengths": lengths}
    model.tfidf.fit(lambda: [(x[:40], lengths[:40], labels[:40])], lambda: [(x[40:], lengths[40:], labels[40:])])
    model.ngrams.table.weight.data[:-1].normal_(std=3)
    held_out = {"inputs": x[40:], "lengths": lengths[40:]}
    model.eval()
    before, empty = model.log_prob(labels[40:], held_out).sum(), model({"inputs": x, "lengths": lengths * 0})
    model.calibrate([Batch(labels[40:], context=held_out)])
    assert model.log_prob(labels[40:], held_out).sum() > before + 1
    assert model.shares[2] > model.shares[1]
    torch.testing.assert_close(model({"inputs": x, "lengths": lengths * 0}).probs, empty.probs)
    every = torch.cartesian_prod(*[torch.arange(2)] * 3) if several else torch.arange(3)
    total = torch.stack([model.log_prob(each.expand(80, *each.shape), context) for each in every]).exp().sum(0)
    torch.testing.assert_close(total, torch.ones_like(total), rtol=0, atol=1e-12)
