"""Completions come from the posterior over what is not known."""

from itertools import product

import pytest
import torch
from decoded_models import TinyDecoder

from chainrule.decoding import complete
from chainrule.heads import Column
from chainrule.models import MADE, RecurrentLM, TableMADE, WaveNet


def made(seed: int = 0, features: int = 4) -> MADE:
    torch.manual_seed(seed)
    model = MADE(features, [24], order=torch.tensor([2, 0, 3, 1])[:features]).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    return model.eval()


def posterior(model, x, known):
    """p(sequence | known) by enumeration, and log p(known)."""
    every = torch.tensor(list(product([0.0, 1.0], repeat=x.shape[0])), dtype=torch.float64)
    fits = (every == x)[:, known].all(1)
    log_prob = model.log_prob(model.from_sequence(every)).detach()
    log_evidence = log_prob[fits].logsumexp(0)
    return every[fits], (log_prob[fits] - log_evidence).exp(), log_evidence


@pytest.mark.parametrize("known", [[0, 0, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1], [0, 0, 0, 1]])
def test_completions_follow_the_posterior_wherever_the_known_elements_stand(known):
    model, x, known = made(), torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64), torch.tensor(known).bool()
    sequences, probabilities, log_evidence = posterior(model, x, known)
    count = 4000
    found = complete(
        model,
        x.expand(count, -1),
        known.expand(count, -1),
        particles=64,
        generator=torch.Generator().manual_seed(0),
    )
    assert torch.equal(found.x[:, known], x[known].expand(count, -1))
    frequencies = torch.stack([(found.x == sequence).all(1).double().mean() for sequence in sequences])
    deviation = (probabilities * (1 - probabilities) / count).sqrt()
    assert ((frequencies - probabilities).abs() < 4.5 * deviation + 0.01).all(), (frequencies, probabilities)
    assert found.log_evidence.exp().mean().log().item() == pytest.approx(log_evidence.item(), abs=0.02)
    assert (found.effective_particles >= 1).all()


def test_one_particle_ignores_what_comes_later_so_that_the_test_above_can_fail():
    model, x, known = made(), torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64), torch.tensor([0, 0, 0, 1]).bool()
    sequences, probabilities, _ = posterior(model, x, known)
    found = complete(
        model, x.expand(4000, -1), known.expand(4000, -1), particles=1, generator=torch.Generator().manual_seed(0)
    )
    frequencies = torch.stack([(found.x == sequence).all(1).double().mean() for sequence in sequences])
    assert (frequencies - probabilities).abs().max() > 0.05


@pytest.mark.parametrize("kind", ["made", "wavenet"])
def test_what_is_known_first_is_completed_as_a_prefix_is_value_for_value(kind):
    torch.manual_seed(0)
    model = MADE(6, [16]) if kind == "made" else WaveNet(levels=8, channels=8, blocks=1, layers_per_block=2)
    prefix = torch.tensor([[1, 0], [0, 1], [1, 1]])
    prefix = prefix.float() if kind == "made" else prefix
    x = torch.cat([prefix, prefix.new_zeros(3, 4)], 1)
    known = torch.arange(6).expand(3, 6) < 2
    found = complete(model, x, known, particles=1, generator=torch.Generator().manual_seed(3))
    drawn = model.sample(3, prefix=prefix, length=6, generator=torch.Generator().manual_seed(3))
    assert torch.equal(model.from_sequence(found.x), drawn)
    whole = model.initial_state(3)
    torch.testing.assert_close(
        found.log_evidence.float(), model.unroll(prefix, whole)[0].log_prob(prefix).sum(1).detach()
    )


def test_everything_known_is_its_likelihood_and_nothing_known_is_a_sample():
    model = made()
    x = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    found = complete(model, x, torch.ones(2, 4).bool(), particles=3)
    assert torch.equal(found.x, x)
    torch.testing.assert_close(found.log_evidence, model.log_prob(model.from_sequence(x)).detach())
    drawn = complete(model, x, torch.zeros(2, 4).bool(), particles=1, generator=torch.Generator().manual_seed(1)).x
    assert torch.equal(model.from_sequence(drawn), model.sample(2, generator=torch.Generator().manual_seed(1)))


def test_a_context_belongs_to_its_row():
    model = TinyDecoder(vocab_size=3, seed=0)
    context = torch.randn(2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 5
    x = torch.zeros(2, 3, dtype=torch.long)
    known = torch.ones(2, 3).bool()
    both = complete(model, x, known, context, particles=2).log_evidence
    torch.testing.assert_close(both, model.log_prob(x, context).double().detach())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"known": torch.ones(1, 3).bool()}, "known"),
        ({"known": torch.ones(1, 4)}, "known"),
        ({"particles": 0}, "particles"),
    ],
)
def test_what_cannot_be_is_refused(change, message):
    arguments = {"x": torch.zeros(1, 4, dtype=torch.float64), "known": torch.ones(1, 4).bool(), "particles": 1} | change
    with pytest.raises(ValueError, match=message):
        complete(made(), **arguments)


def test_the_impossible_is_said():
    model = TinyDecoder(vocab_size=3, seed=0)
    step = model.step

    def without_two(x_prev, state):
        conditional, state = step(x_prev, state)
        logits = conditional.logits.clone()
        logits[:, 2] = -torch.inf
        return type(conditional)(logits), state

    model.step = without_two
    with pytest.raises(ValueError, match="row 0: the known elements up to 1 are impossible"):
        complete(model, torch.tensor([[0, 2]]), torch.ones(1, 2).bool(), torch.zeros(1, 2, dtype=torch.float64))


def test_no_rows_are_completed_as_none():
    model, x = RecurrentLM(3, hidden_size=4), torch.zeros(0, 4, dtype=torch.long)
    found = complete(model, x, x.bool())
    assert found.x.shape == (0, 4)
    assert found.log_evidence.shape == found.effective_particles.shape == (0,)


def test_a_completion_that_a_resampling_left_on_few_draws_says_so():
    model = MADE(3, [])
    with torch.no_grad():  # the first is seldom 1, the second nearly always equals the first, the third is a coin
        model.output.weight.copy_(torch.tensor([[0.0, 0, 0], [24, 0, 0], [0, 0, 0]]))
        model.output.bias.copy_(torch.tensor([-4.0, -12, 0]))
    x, known = torch.ones(4, 3), torch.tensor([False, True, False]).expand(4, 3)
    found = complete(model, x, known, particles=512, generator=torch.Generator().manual_seed(0))
    assert (found.x[:, 0] == 1).all()
    assert (found.effective_particles < 40).all()  # about one in fifty-five


def mixed_table():
    return TableMADE([Column("categorical", categories=2), Column("real", scale=100.0)], 8, 1)


def many_symbols():
    return WaveNet(levels=300, channels=4, layers_per_block=2, skip_channels=4)


@pytest.mark.parametrize(
    ("make", "dtype"),
    [(mixed_table, torch.bool), (mixed_table, torch.int64), (mixed_table, torch.float32), (many_symbols, torch.uint8)],
)
def test_draws_do_not_depend_on_the_dtype_of_the_known_elements(make, dtype):
    """Draws were once cast to the dtype of x: real numbers lost their fractions, and symbols above 255 wrapped."""
    torch.manual_seed(0)
    model, known = make(), torch.tensor([[True, False]]).expand(20, 2)
    widest = torch.float64 if make is mixed_table else torch.int64
    found, expected = (
        complete(model, torch.ones(20, 2, dtype=kind), known, generator=torch.Generator().manual_seed(0)).x
        for kind in (dtype, widest)
    )
    torch.testing.assert_close(found, expected, check_dtype=False, rtol=0, atol=0)
