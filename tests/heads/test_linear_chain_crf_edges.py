"""LinearChainCRF at its edges: padding, empty rows, forbidden tags, low precision, and what it refuses."""

import math

import pytest
import torch
from tag_enumeration import CONSTRAINED, CRFS, LENGTHS, drawn, random_crf

from chainrule.heads import LinearChainCRF, TagConstraints


@CRFS
def test_forbidden_tags_have_probability_zero_and_a_finite_gradient(constraints):
    crf, emissions = random_crf(constraints=constraints), drawn(3, 3, 3).requires_grad_()
    tags = torch.tensor([[0, 1, 0], [0, 2, 0], [1, 1, 0]])
    log_prob = crf.log_prob(tags, emissions)
    assert (log_prob == -math.inf).tolist() == [False, constraints is not None, constraints is not None]
    log_prob[log_prob.isfinite()].sum().backward()
    assert emissions.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in crf.parameters())


def test_draws_of_short_rows_follow_their_own_end():
    crf = LinearChainCRF(2)
    crf.ends.data[1] = 50.0
    tags = crf.sample(torch.zeros(5, 4, 2), LENGTHS, generator=torch.Generator().manual_seed(0))
    assert [row[length - 1] for row, length in zip(tags.tolist(), LENGTHS.tolist(), strict=True) if length] == [1] * 4


@CRFS
@pytest.mark.parametrize("filling", [math.nan, math.inf, -math.inf, 1e30])
def test_what_stands_past_the_end_is_never_read(filling, constraints):
    crf, emissions = random_crf(constraints=constraints), drawn(5, 4, 3)
    tags = crf.decode(emissions, LENGTHS)
    padding = torch.arange(4) >= LENGTHS.unsqueeze(1)
    filled = emissions.masked_fill(padding.unsqueeze(2), filling).requires_grad_()
    wrong = tags.masked_fill(padding, 999)
    assert torch.equal(crf.log_prob(wrong, filled, LENGTHS), crf.log_prob(tags, emissions, LENGTHS))
    assert torch.equal(crf.log_partition(filled, LENGTHS), crf.log_partition(emissions, LENGTHS))
    assert torch.equal(crf.marginals(filled, LENGTHS), crf.marginals(emissions, LENGTHS))
    assert torch.equal(crf.decode(filled, LENGTHS), tags)
    generators = [torch.Generator().manual_seed(0) for _ in range(2)]
    assert torch.equal(
        crf.sample(filled, LENGTHS, generator=generators[0]), crf.sample(emissions, LENGTHS, generator=generators[1])
    )
    (gradient,) = torch.autograd.grad(crf.log_prob(wrong, filled, LENGTHS).sum(), filled)
    assert gradient.isfinite().all()
    assert (gradient[padding] == 0).all()


def test_rows_do_not_depend_on_the_rows_beside_them():
    crf, emissions = random_crf(), drawn(5, 4, 3)
    tags = crf.decode(emissions, LENGTHS)
    together = crf.log_prob(tags, emissions, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = emissions[row : row + 1, :length]
        torch.testing.assert_close(crf.log_prob(tags[row : row + 1, :length], alone)[0], together[row])
        assert torch.equal(crf.decode(alone)[0], tags[row, :length])


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 2), (0, 0, 2)])
def test_no_rows_and_no_places_are_fine(shape):
    crf, emissions = LinearChainCRF(2), torch.zeros(shape)
    tags = torch.zeros(shape[:2], dtype=torch.long)
    assert crf.log_partition(emissions).shape == shape[:1]
    assert crf.marginals(emissions).shape == shape
    assert crf.decode(emissions).shape == shape[:2]
    assert crf.sample(emissions).shape == shape[:2]
    assert crf.decode_n_best(emissions, n=3)[0].shape == (shape[0], 3, shape[1])
    if shape[1] == 0:
        assert crf.log_prob(tags, emissions).tolist() == [0.0] * shape[0]


def test_long_rows_and_large_scores_are_no_trouble_in_float32():
    exact, emissions = random_crf(5), drawn(2, 2000, 5, scale=5.0) + 300
    tags = exact.decode(emissions)
    expected = exact.log_prob(tags, emissions)
    single = random_crf(5).float()
    got = single.log_prob(tags, emissions.float())
    # 2000 float32 additions to sums of about 1e4, each off by half of 1e-3 at most; errors average out. Emissions of
    # about 300 that were not centred would make sums of 6e5, and be off by tens.
    torch.testing.assert_close(got.double(), expected, rtol=1e-3, atol=0)
    assert single.marginals(emissions.float()).sum(2).sub(1).abs().max() < 1e-5
    extreme = torch.tensor([[[1e30, -1e30, 0.0], [-1e30, 1e30, 0.0]]])
    assert LinearChainCRF(3).log_prob(torch.tensor([[0, 1]]), extreme).item() == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype):
    crf, emissions = random_crf().float(), drawn(5, 4, 3).to(dtype)
    tags = crf.decode(emissions, LENGTHS)
    expected = crf.log_prob(tags, emissions.float(), LENGTHS)
    assert torch.equal(crf.log_prob(tags, emissions, LENGTHS), expected)
    with torch.autocast("cpu", dtype):
        assert torch.equal(crf.log_prob(tags, emissions, LENGTHS), expected)
        assert crf.log_partition(emissions, LENGTHS).dtype == torch.float32
    assert crf.to(dtype).log_prob(tags, emissions, LENGTHS).dtype == torch.float32


def test_emissions_of_minus_infinity_forbid_a_tag_at_a_place():
    crf, emissions = random_crf(), drawn(1, 3, 3)
    forbidding = emissions.clone()
    forbidding[0, 1, [0, 2]] = -math.inf
    forbidding.requires_grad_()
    assert crf.decode(forbidding)[0, 1] == 1
    marginals = crf.marginals(forbidding)
    assert marginals[0, 1].tolist() == [0, 1, 0]
    (gradient,) = torch.autograd.grad(crf.log_partition(forbidding).sum(), forbidding)
    torch.testing.assert_close(gradient, marginals)


def test_a_tag_that_no_sequence_reaches_gives_no_nan():
    allowed = torch.tensor([[True, False], [False, True]])
    crf = random_crf(2, constraints=TagConstraints(allowed, torch.tensor([True, False]), torch.tensor([True, True])))
    emissions = drawn(1, 4, 2).requires_grad_()
    assert crf.decode(emissions).tolist() == [[0, 0, 0, 0]]
    assert crf.log_prob(torch.tensor([[0, 0, 0, 0]]), emissions).item() == pytest.approx(0, abs=1e-12)
    crf.log_partition(emissions).sum().backward()
    assert emissions.grad[0].tolist() == [[1, 0]] * 4
    assert all(parameter.grad.isfinite().all() for parameter in crf.parameters())


def test_a_row_that_nothing_can_tag_is_said():
    pair = TagConstraints.bio(["O", "B-X", "I-X"])
    only_pairs = TagConstraints(
        pair.transitions, torch.tensor([False, True, False]), torch.tensor([False, False, True])
    )
    crf, emissions = random_crf(constraints=only_pairs), drawn(2, 3, 3).requires_grad_()
    lengths = torch.tensor([3, 1])
    log_z = crf.log_partition(emissions, lengths)
    assert log_z.isfinite().tolist() == [True, False]
    log_prob = crf.log_prob(torch.tensor([[1, 1, 2], [1, 0, 0]]), emissions, lengths)
    assert log_prob[1] == -math.inf
    log_prob[0].backward()
    assert emissions.grad.isfinite().all()
    for method in (crf.decode, crf.marginals, crf.sample, lambda *x: crf.decode_n_best(*x, n=2)):
        with pytest.raises(ValueError, match="emissions: row 1, of length 1, has no tag sequence of finite score"):
            method(emissions, lengths)


def test_a_place_that_forbids_all_tags_makes_its_row_impossible_and_no_other():
    crf, emissions = random_crf(), drawn(2, 3, 3)
    forbidding = emissions.clone()
    forbidding[1, 1] = -math.inf
    tags = torch.zeros(2, 3, dtype=torch.long)
    assert crf.log_partition(forbidding)[1] == -math.inf
    assert crf.log_prob(tags, forbidding)[1] == -math.inf
    log_prob = crf.log_prob(tags, forbidding)[0]
    assert log_prob == crf.log_prob(tags, emissions)[0]
    log_prob.backward()
    assert all(parameter.grad.isfinite().all() for parameter in crf.parameters())


def test_nan_at_a_real_place_is_refused():
    emissions = drawn(2, 3, 3)
    emissions[1, 2, 0] = math.nan
    with pytest.raises(ValueError, match=r"emissions: row 1.*check the emissions for NaN"):
        random_crf().decode(emissions)


def test_constraints_are_no_weights():
    crf = random_crf(constraints=CONSTRAINED)
    assert sorted(crf.state_dict()) == ["ends", "starts", "transitions"]
    random_crf().load_state_dict(crf.state_dict())
    assert repr(crf) == "LinearChainCRF(num_tags=3, constrained)"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda crf: LinearChainCRF(0), "num_tags: expected an integer >= 1, got 0"),
        (
            lambda crf: LinearChainCRF(2, CONSTRAINED),
            r"constraints: expected transitions as booleans of shape \(2, 2\)",
        ),
        (lambda crf: crf.decode(torch.zeros(2, 4)), r"emissions: expected shape \(B, T, 3\), got \(2, 4\)"),
        (lambda crf: crf.decode(torch.zeros(2, 4, 5)), "emissions"),
        (lambda crf: crf.decode(torch.zeros(2, 4, 3), torch.tensor([1])), "lengths: expected 2 integers, one a row"),
        (lambda crf: crf.decode(torch.zeros(1, 4, 3), torch.tensor([5])), r"lengths: expected values in \[0, 4\]"),
        (lambda crf: crf.decode(torch.zeros(1, 4, 3), torch.tensor([-1])), "lengths"),
        (lambda crf: crf.log_prob(torch.zeros(1, 3).long(), torch.zeros(1, 4, 3)), "tags: expected integers of shape"),
        (lambda crf: crf.log_prob(torch.zeros(1, 4), torch.zeros(1, 4, 3)), "tags: expected integers of shape"),
        (lambda crf: crf.log_prob(torch.full((1, 4), 3), torch.zeros(1, 4, 3)), r"in \[0, 3\) outside padding, got 3"),
        (lambda crf: crf.log_prob(torch.full((1, 4), -1), torch.zeros(1, 4, 3)), "got -1"),
        (lambda crf: crf.decode_n_best(torch.zeros(1, 4, 3), n=0), "n: expected an integer >= 1, got 0"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(LinearChainCRF(3))


def test_learned_scores_of_minus_infinity_forbid_with_a_finite_gradient():
    crf, emissions = random_crf(), drawn(1, 3, 3).requires_grad_()
    with torch.no_grad():
        crf.transitions[:, 2] = -math.inf
        crf.starts[2] = -math.inf
    constrained = LinearChainCRF(
        3, TagConstraints(*(parameter > -math.inf for parameter in (crf.transitions, crf.starts, crf.ends)))
    ).to(emissions)
    constrained.load_state_dict({name: part.nan_to_num(neginf=0.0) for name, part in crf.state_dict().items()})
    tags, found = torch.tensor([[0, 1, 0]]), []
    for layer in (crf, constrained):
        log_prob = layer.log_prob(tags, emissions)
        found.append((log_prob, *torch.autograd.grad(log_prob.sum(), [emissions, *layer.parameters()])))
    for got, expected in zip(*found, strict=True):
        torch.testing.assert_close(got, expected)
