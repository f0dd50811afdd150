"""AdaptiveSoftmax is torch's, with biases, and an embedding that shares its weights."""

import math

import pytest
import torch
from torch import nn

from chainrule.layers import AdaptiveSoftmax

EXACT = {"rtol": 1e-12, "atol": 1e-12}
M, V, CUTOFFS = 16, 30, (6, 14)


def test_with_weights_copied_it_is_that_of_torch():
    theirs = nn.AdaptiveLogSoftmaxWithLoss(M, V, list(CUTOFFS), div_value=4.0, head_bias=True).double()
    ours = AdaptiveSoftmax(M, V, CUTOFFS).double()
    with torch.no_grad():
        ours.head_weight.copy_(theirs.head.weight)
        ours.head_bias.copy_(theirs.head.bias)
        for k, (projection, weight) in enumerate(theirs.tail):
            ours.projections[k].copy_(projection.weight)
            ours.tail_weights[k].copy_(weight.weight)
            ours.tail_biases[k].zero_()  # torch has none there
    results = []
    h, value = torch.randn(50, M, dtype=torch.float64), torch.randint(V, (50,))
    for module, log_prob in ((ours, lambda x: ours(x).log_prob(value)), (theirs, lambda x: theirs(x, value).output)):
        x = h.clone().requires_grad_()
        terms = log_prob(x)
        terms.square().sum().backward()
        head = (module.head_weight, module.head_bias) if module is ours else (theirs.head.weight, theirs.head.bias)
        tails = (
            [*module.projections, *module.tail_weights]
            if module is ours
            else [tail[part].weight for part in (0, 1) for tail in theirs.tail]
        )
        results.append([terms, x.grad, *(parameter.grad for parameter in (*head, *tails))])
    for left, right in zip(*results, strict=True):
        torch.testing.assert_close(left, right, **EXACT)
    torch.testing.assert_close(ours(h).logits, theirs.log_prob(h), **EXACT)


def dense_vectors(softmax):
    parts = [softmax.head_weight[: softmax.cutoffs[0]]]
    parts += [weight @ projection for weight, projection in zip(softmax.tail_weights, softmax.projections, strict=True)]
    return torch.cat([*parts, softmax.input_weight])


@pytest.mark.parametrize("shape", [(), (7,), (4, 9)])
def test_an_embedding_is_the_row_that_scores_are_products_with(shape):
    softmax = AdaptiveSoftmax(M, V, CUTOFFS, input_only=2).double()
    symbols = torch.randint(V + 2, shape)
    weights = torch.randn(*shape, M, dtype=torch.float64)
    results = []
    for embed in (softmax.embed, lambda symbols: dense_vectors(softmax)[symbols]):
        softmax.zero_grad()
        vectors = embed(symbols)
        (vectors * weights).sum().backward()
        results.append([vectors, *(p.grad for name, p in softmax.named_parameters() if "bias" not in name)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, **EXACT)


def test_scores_inside_a_cluster_are_products_with_the_embedding():
    softmax = AdaptiveSoftmax(M, V, CUTOFFS).double()
    h = torch.randn(3, M, dtype=torch.float64)
    members = torch.arange(*CUTOFFS)
    expected = (h @ softmax.embed(members).t() + softmax.tail_biases[0]).log_softmax(-1)
    inside = softmax(h).logits[:, members]
    torch.testing.assert_close(inside - inside.logsumexp(-1, keepdim=True), expected, **EXACT)


def test_one_cluster_is_the_plain_softmax():
    softmax = AdaptiveSoftmax(M, V, ()).double()
    h = torch.randn(3, M, dtype=torch.float64)
    expected = nn.functional.linear(h, softmax.head_weight, softmax.head_bias).log_softmax(-1)
    torch.testing.assert_close(softmax(h).logits, expected, **EXACT)
    value = torch.tensor([0, 12, 29])
    torch.testing.assert_close(softmax(h).log_prob(value), expected[torch.arange(3), value], **EXACT)
    assert softmax(h).sample().shape == (3,)
    torch.testing.assert_close(softmax.embed(value), softmax.head_weight[value], **EXACT)


def test_it_begins_at_the_uniform_distribution_with_vectors_of_one_length():
    softmax = AdaptiveSoftmax(64, 5000, (500, 2000))
    torch.testing.assert_close(softmax(torch.zeros(64)).logits, torch.full((5000,), -math.log(5000)))
    lengths = softmax.embed(torch.arange(5000)).detach().norm(dim=1)
    for start, end in ((0, 500), (500, 2000), (2000, 5000)):
        assert lengths[start:end].square().mean() == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("cutoffs", [(0, 4), (4, 4), (6, 4), (4, 30), (31,), (4.5, 6)])
def test_bad_cutoffs_are_refused_in_one_line(cutoffs):
    with pytest.raises(ValueError, match="cutoffs: expected ascending integers from 1 to 29") as caught:
        AdaptiveSoftmax(M, V, cutoffs)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"hidden_size": 0}, "hidden_size"),
        ({"vocab_size": 0}, "vocab_size"),
        ({"reduction": 0.5}, "reduction"),
        ({"input_only": -1}, "input_only"),
    ],
)
def test_wrong_options_are_named(options, name):
    with pytest.raises(ValueError, match=name):
        AdaptiveSoftmax(**{"hidden_size": M, "vocab_size": V, "cutoffs": (), **options})


def test_default_cutoffs_divide_the_text_as_frequencies_say():
    assert AdaptiveSoftmax.default_cutoffs(8191) is None
    shares = 1 / torch.arange(1, 10_001, dtype=torch.float64)
    first, second = AdaptiveSoftmax.default_cutoffs(10_000)
    assert (first, second) == AdaptiveSoftmax.default_cutoffs(10_000, (7 * shares).tolist())
    for cutoff, share in ((first, 0.75), (second, 0.9)):
        assert shares[: cutoff - 1].sum() < share * shares.sum() <= shares[:cutoff].sum()
    steeper = AdaptiveSoftmax.default_cutoffs(10_000, shares.square().tolist())
    assert steeper[0] < first
    AdaptiveSoftmax(M, 10_000, steeper)
    assert AdaptiveSoftmax.default_cutoffs(10_000, [1.0] + [0.0] * 9_999) is None  # one symbol is the whole text


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((0,), "vocab_size"),
        ((3, [1.0, 2.0]), "frequencies"),
        ((2, [1.0, -1.0]), "frequencies"),
        ((1, [0.0]), "frequencies"),
    ],
)
def test_wrong_arguments_of_the_rule_are_named(arguments, name):
    with pytest.raises(ValueError, match=name):
        AdaptiveSoftmax.default_cutoffs(*arguments)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
def test_narrow_integers_have_the_vectors_of_wide_ones(dtype):
    layer, symbols = AdaptiveSoftmax(M, V, CUTOFFS, input_only=1), torch.arange(V + 1)
    assert torch.equal(layer.embed(symbols.to(dtype)), layer.embed(symbols))


@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (0,)])
def test_no_symbols_have_no_vectors(shape):
    assert AdaptiveSoftmax(M, V, CUTOFFS).embed(torch.zeros(shape, dtype=torch.long)).shape == (*shape, M)
