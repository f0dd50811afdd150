"""Attention is the weighted mean its equations name, over each row's real positions alone."""

import math

import pytest
import torch

from chainrule.layers import AdditiveAttention, MultiplicativeAttention
from chainrule.state import select, share

N, Q, K = 3, 4, 5
KINDS = {
    "additive": lambda: AdditiveAttention(N, Q, K),
    "additive, values": lambda: AdditiveAttention(N, Q, K, value_size=2),
    "general": lambda: MultiplicativeAttention(N, Q),
    "general, values": lambda: MultiplicativeAttention(N, Q, value_size=2),
    "dot": lambda: MultiplicativeAttention(Q, Q, dot=True),
}


def made(kind):
    torch.manual_seed(0)
    attention = KINDS[kind]().double()
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter)
    memory = torch.randn(3, 6, attention.memory_size, dtype=torch.float64)
    return attention, memory, torch.randn(3, 2, Q, dtype=torch.float64)


def score(attention, query, position):
    """e(q, m_s), as its equation reads, with the loops of a textbook."""
    if isinstance(attention, AdditiveAttention):
        hidden = attention.weight_query @ query + attention.weight_memory @ position + attention.bias
        return float(attention.weight_score[0] @ hidden.tanh())
    key = position if attention.weight_memory is None else attention.weight_memory @ position
    return float(query @ key)


@pytest.mark.parametrize("kind", KINDS)
def test_it_equals_its_equations_position_by_position(kind):
    attention, memory, queries = made(kind)
    lengths = torch.tensor([6, 1, 4])
    with torch.no_grad():
        read, weights = attention(queries, attention.remember(memory, lengths))
        for row, length in enumerate(lengths.tolist()):
            for t, query in enumerate(queries[row]):
                exponentials = [math.exp(score(attention, query, memory[row, s])) for s in range(length)]
                expected = torch.zeros(attention.output_size, dtype=torch.float64)
                for s, exponential in enumerate(exponentials):
                    share = exponential / sum(exponentials)
                    assert float(weights[row, t, s]) == pytest.approx(share, rel=1e-12)
                    value = memory[row, s]
                    expected += share * (value if attention.weight_value is None else attention.weight_value @ value)
                assert not weights[row, t, length:].any()
                torch.testing.assert_close(read[row, t], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_padding_is_not_read_though_it_be_nan_and_gets_no_gradient(kind):
    attention, memory, queries = made(kind)
    lengths = torch.tensor([6, 1, 4])
    spoilt = memory.clone()
    for row, length in enumerate(lengths.tolist()):
        spoilt[row, length:] = torch.nan
    spoilt.requires_grad_()
    read, weights = attention(queries, attention.remember(spoilt, lengths))
    for row, length in enumerate(lengths.tolist()):
        alone, own = attention(queries[row : row + 1], attention.remember(memory[row : row + 1, :length]))
        torch.testing.assert_close(read[row], alone[0], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(weights[row, :, :length], own[0], rtol=1e-13, atol=1e-13)
    (read.sum() + weights.square().sum()).backward()
    assert spoilt.grad.isfinite().all()
    assert not spoilt.grad[1, 1:].any()
    assert spoilt.grad[1, 0].any() or attention.weight_value is not None
    assert all(parameter.grad.isfinite().all() for parameter in attention.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_without_a_position_reads_nothing(kind):
    attention, memory, queries = made(kind)
    read, weights = attention(queries, attention.remember(memory, torch.tensor([0, 6, 2])))
    assert not read[0].any()
    assert not weights[0].any()
    torch.testing.assert_close(weights[1:].sum(2), torch.ones(2, 2, dtype=torch.float64))
    nothing = attention.remember(memory[:, :0], torch.zeros(3, dtype=torch.long))
    assert attention(queries, nothing)[0].shape == (3, 2, attention.output_size)


@pytest.mark.parametrize("kind", KINDS)
def test_one_query_is_read_as_one_of_several_is_and_a_state_can_be_reordered(kind):
    attention, memory, queries = made(kind)
    remembered = attention.remember(memory, torch.tensor([6, 1, 4]))
    together, weights = attention(queries, remembered)
    for t in range(2):
        read, own = attention(queries[:, t], remembered)
        torch.testing.assert_close(read, together[:, t], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(own, weights[:, t], rtol=1e-13, atol=1e-13)
    rows = torch.tensor([2, 2, 0])
    forked, _ = attention(queries[rows], select(remembered, rows))
    torch.testing.assert_close(forked, together[rows], rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_finite_differences(kind):
    attention, memory, queries = made(kind)

    def read(memory, queries):
        return attention(queries, attention.remember(memory, torch.tensor([6, 1, 4])))

    assert torch.autograd.gradcheck(read, (memory.requires_grad_(), queries.requires_grad_()))


def test_scores_too_large_for_an_exponential_are_no_trouble():
    attention = MultiplicativeAttention(1, 1, dot=True)
    memory = torch.tensor([[[1e4], [-1e4], [5e3]]])
    _, weights = attention(torch.tensor([[10.0]]), attention.remember(memory, torch.tensor([2])))
    assert weights.tolist() == [[1.0, 0.0, 0.0]]
    _, weights = attention(torch.tensor([[-10.0]]), attention.remember(memory, torch.tensor([1])))
    assert weights.tolist() == [[1.0, 0.0, 0.0]]  # a score far below that of the padding


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: AdditiveAttention(0, 4, 5), "memory_size: expected an integer >= 1, got 0"),
        (lambda: AdditiveAttention(3, 4, 5, value_size=0), "value_size"),
        (lambda: MultiplicativeAttention(3, 4, dot=True), "dot: needs memory_size = query_size, got 3 and 4"),
        (lambda: KINDS["general"]().remember(torch.zeros(2, 5, 4)), r"memory: expected shape \(B, S, 3\)"),
        (lambda: KINDS["general"]().remember(torch.zeros(2, 5, 3), torch.tensor([1])), "lengths: expected 2 integers"),
    ],
)
def test_what_does_not_fit_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [[2, 0, 2, 2, 1], [0, 0, 1, 2], [1], [2, 2]])
def test_a_memory_that_rows_share_is_read_as_if_each_had_its_own(kind, rows):
    attention, memory, _ = made(kind)
    rows = torch.tensor(rows)
    queries = torch.randn(len(rows), Q, dtype=torch.float64)
    remembered = attention.remember(memory, torch.tensor([6, 0, 4]))
    with torch.no_grad():
        expected = attention(queries, select(remembered, rows))
        shared = select(share(remembered), rows)
        for found in (attention(queries, shared), attention(queries, share(shared))):
            torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kind", [AdditiveAttention, MultiplicativeAttention])
def test_several_queries_of_rows_that_share_a_memory_are_those_of_copies(kind):
    attention = kind(3, 4, **({"key_size": 5} if kind is AdditiveAttention else {})).double()
    remembered = attention.remember(torch.randn(2, 5, 3, dtype=torch.float64), torch.tensor([5, 3]))
    rows, queries = torch.tensor([1, 0, 1]), torch.randn(3, 6, 4, dtype=torch.float64)
    together, copies = select(share(remembered), rows), select(remembered, rows)
    for ours, theirs in zip(attention(queries, together), attention(queries, copies), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)
