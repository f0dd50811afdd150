"""LinearChainCRF is exact against enumeration of all tag sequences, and reads nothing past a row's end."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tag_enumeration import CRFS, LENGTHS, drawn, enumerated, random_crf

from chainrule.heads import LinearChainCRF


@CRFS
@pytest.mark.parametrize("num_tags", [1, 3])
def test_partition_and_log_prob_equal_enumeration(num_tags, constraints):
    if num_tags == 1 and constraints is not None:
        return
    crf, emissions = random_crf(num_tags, constraints=constraints), drawn(5, 4, num_tags)
    log_z = crf.log_partition(emissions, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        possible, expected = enumerated(crf, emissions[row], length)
        assert float(log_z[row].detach()) == pytest.approx(expected, abs=1e-12)
        tags = torch.tensor([sequence for _, sequence in possible], dtype=torch.long).view(len(possible), length)
        rows = emissions[row, :length].expand(len(possible), -1, -1)
        got = crf.log_prob(tags, rows).detach()
        torch.testing.assert_close(
            got, torch.tensor([log_prob for log_prob, _ in possible], dtype=torch.float64), rtol=1e-12, atol=1e-12
        )
        assert float(got.exp().sum()) == pytest.approx(1, abs=1e-12)


@CRFS
def test_marginals_equal_enumeration_and_the_gradient_of_the_partition(constraints):
    crf, emissions = random_crf(constraints=constraints), drawn(5, 4, 3).requires_grad_()
    marginals = crf.marginals(emissions, LENGTHS).detach()
    (gradient,) = torch.autograd.grad(crf.log_partition(emissions, LENGTHS).sum(), emissions)
    torch.testing.assert_close(marginals, gradient, rtol=1e-12, atol=1e-12)
    for row, length in enumerate(LENGTHS.tolist()):
        expected = torch.zeros(4, 3, dtype=torch.float64)
        for log_prob, tags in enumerated(crf, emissions[row], length)[0]:
            for t, tag in enumerate(tags):
                expected[t, tag] += math.exp(log_prob)
        torch.testing.assert_close(marginals[row], expected, rtol=1e-12, atol=1e-12)


@CRFS
def test_gradients_of_log_prob_are_right(constraints):
    crf = random_crf(constraints=constraints)
    tags = torch.tensor([[0, 1, 2, 1], [0, 0, 0, 0], [1, 0, 0, 0], [1, 2, 1, 0], [0, 1, 0, 0]])

    def log_prob(emissions, transitions, starts, ends):
        replaced = {"transitions": transitions, "starts": starts, "ends": ends}
        return torch.func.functional_call(
            _LogProb(crf), {f"crf.{k}": v for k, v in replaced.items()}, (tags, emissions)
        )

    arguments = (drawn(5, 4, 3), *(parameter.detach() for parameter in (crf.transitions, crf.starts, crf.ends)))
    assert torch.autograd.gradcheck(log_prob, [argument.clone().requires_grad_() for argument in arguments])


class _LogProb(torch.nn.Module):
    def __init__(self, crf):
        super().__init__()
        self.crf = crf

    def forward(self, tags, emissions):
        return self.crf.log_prob(tags, emissions, LENGTHS)


@CRFS
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_decoding_finds_the_best_and_the_n_best_of_all(seed, constraints):
    crf, emissions = random_crf(seed=seed, constraints=constraints), drawn(5, 4, 3, seed=seed)
    best = crf.decode(emissions, LENGTHS)
    tags, log_probs = crf.decode_n_best(emissions, LENGTHS, n=20)
    assert best.shape == (5, 4)
    assert tags.shape == (5, 20, 4)
    for row, length in enumerate(LENGTHS.tolist()):
        expected = enumerated(crf, emissions[row], length)[0][:20]
        assert best[row].tolist() == expected[0][1] + [-1] * (4 - length)
        assert tags[row, : len(expected)].tolist() == [sequence + [-1] * (4 - length) for _, sequence in expected]
        found = torch.tensor([log_prob for log_prob, _ in expected], dtype=torch.float64)
        torch.testing.assert_close(log_probs[row, : len(expected)], found, rtol=1e-12, atol=1e-12)
        assert (log_probs[row, len(expected) :] == -math.inf).all()
        assert (tags[row, len(expected) :] == -1).all()


def test_of_equals_one_is_always_chosen():
    crf = LinearChainCRF(3)
    assert crf.decode(torch.zeros(2, 4, 3)).tolist() == [[0, 0, 0, 0]] * 2
    tags, log_probs = crf.decode_n_best(torch.zeros(1, 2, 3), n=9)
    assert len({tuple(sequence) for sequence in tags[0].tolist()}) == 9
    torch.testing.assert_close(log_probs.exp(), torch.full((1, 9), 1 / 9))


@CRFS
def test_draws_have_the_frequencies_of_log_prob(constraints):
    crf, emissions, draws = random_crf(constraints=constraints), drawn(1, 3, 3, scale=0.5), 20_000
    tags = crf.sample(emissions.expand(draws, -1, -1), generator=torch.Generator().manual_seed(0))
    possible, _ = enumerated(crf, emissions[0], 3)
    counts = {tuple(sequence): 0 for _, sequence in possible}
    for sequence, count in zip(*(part.tolist() for part in tags.unique(dim=0, return_counts=True)), strict=True):
        counts[tuple(sequence)] += count  # a KeyError is a forbidden sequence
    expected = torch.tensor([draws * math.exp(log_prob) for log_prob, _ in possible])
    often = expected > 5
    statistic = ((torch.tensor(list(counts.values())) - expected) ** 2 / expected)[often].sum()
    assert statistic < int(often.sum()) + 5 * math.sqrt(2 * int(often.sum()))  # chi-square: mean n, variance 2n


def test_draws_come_from_the_generator_alone_and_end_where_rows_end():
    crf, emissions = random_crf(), drawn(5, 4, 3)
    first = crf.sample(emissions, LENGTHS, generator=torch.Generator().manual_seed(1))
    state = torch.get_rng_state()
    assert torch.equal(first, crf.sample(emissions, LENGTHS, generator=torch.Generator().manual_seed(1)))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(first != -1, torch.arange(4) < LENGTHS.unsqueeze(1))


def test_a_new_head_is_a_softmax_at_each_place():
    emissions, tags = drawn(5, 4, 3), torch.randint(3, (5, 4))
    expected = emissions.log_softmax(2).gather(2, tags.unsqueeze(2)).squeeze(2)
    real = torch.arange(4) < LENGTHS.unsqueeze(1)
    torch.testing.assert_close(LinearChainCRF(3).log_prob(tags, emissions, LENGTHS), (expected * real).sum(1))


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.floats(-1e4, 1e4))
def test_a_constant_added_to_the_emissions_of_a_place_moves_the_partition_by_it_and_nothing_else(seed, constant):
    crf, emissions = random_crf(seed=seed), drawn(5, 4, 3, seed=seed)
    moved = emissions.clone()
    moved[:, 1] += constant
    shift = constant * (LENGTHS > 1)
    torch.testing.assert_close(crf.log_partition(moved, LENGTHS), crf.log_partition(emissions, LENGTHS) + shift)
    tags = crf.decode(emissions, LENGTHS)
    assert torch.equal(crf.decode(moved, LENGTHS), tags)
    torch.testing.assert_close(
        crf.log_prob(tags, moved, LENGTHS), crf.log_prob(tags, emissions, LENGTHS), rtol=1e-8, atol=1e-8
    )


@settings(max_examples=30)
@given(st.integers(0, 10_000), st.permutations(range(4)))
def test_renaming_tags_renames_results(seed, order):
    crf, renamed = random_crf(4, seed=seed), random_crf(4, seed=seed)
    order = torch.tensor(order)
    renamed.starts.data, renamed.ends.data = crf.starts.data[order], crf.ends.data[order]
    renamed.transitions.data = crf.transitions.data[order][:, order]
    emissions = drawn(5, 4, 4, seed=seed)
    tags = crf.decode(emissions, LENGTHS)
    ours = renamed.decode(emissions[..., order], LENGTHS)
    assert torch.equal(torch.where(ours >= 0, order[ours], -1), tags)
    torch.testing.assert_close(
        renamed.log_prob(ours, emissions[..., order], LENGTHS), crf.log_prob(tags, emissions, LENGTHS)
    )
    torch.testing.assert_close(
        renamed.marginals(emissions[..., order], LENGTHS), crf.marginals(emissions, LENGTHS)[..., order]
    )


@given(st.integers(0, 10_000))
def test_read_from_the_end_it_is_the_same_distribution(seed):
    crf, turned = random_crf(seed=seed), random_crf(seed=seed)
    turned.starts.data, turned.ends.data = crf.ends.data, crf.starts.data
    turned.transitions.data = crf.transitions.data.t()
    emissions = drawn(2, 4, 3, seed=seed)
    torch.testing.assert_close(turned.log_partition(emissions.flip(1)), crf.log_partition(emissions))
    torch.testing.assert_close(turned.marginals(emissions.flip(1)).flip(1), crf.marginals(emissions))
