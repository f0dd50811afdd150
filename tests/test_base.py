"""What every model gets from the contract: likelihood, sampling, streaming and unrolling."""

import itertools

import pytest
import torch
from torch import nn
from torch.distributions import Independent, LogNormal, Normal

from chainrule._base import AutoregressiveModel
from chainrule._checks import length_mask
from chainrule._executor import Executor
from chainrule.heads import Categorical


class Counter(AutoregressiveModel):
    """p(x_t | x_<t) depends on the sum of what was read and on the context: an exact model to count on."""

    def __init__(self, symbols=3):
        super().__init__()
        self.table = nn.Parameter(torch.randn(50, symbols, generator=torch.Generator().manual_seed(0)))

    def forward(self, x, context=None, lengths=None):
        self.received = x
        sums = x.cumsum(1) - x + (0 if context is None else context)
        return Categorical(self.table[sums % 50])

    def initial_state(self, batch_size, context=None):
        return torch.zeros(batch_size, dtype=torch.long) + (0 if context is None else context[:, 0])

    def step(self, x_prev, state):
        state = state if x_prev is None else state + x_prev
        return Categorical(self.table[state % 50]), state


class Walk(AutoregressiveModel):
    """A random walk of vectors or numbers, drawn from a normal or log-normal distribution."""

    def __init__(self, size=0, kind=Normal):
        super().__init__()
        self.size, self.kind = size, kind
        self.scale = nn.Parameter(torch.tensor(0.5))

    def _around(self, mean):
        distribution = self.kind(mean, self.scale)
        return Independent(distribution, 1) if self.size else distribution

    def forward(self, x, context=None, lengths=None):
        before = x.log() if self.kind is LogNormal else x
        return self._around(torch.cat([torch.zeros_like(x[:, :1]), before[:, :-1]], 1))

    def initial_state(self, batch_size, context=None):
        return torch.zeros(batch_size, self.size) if self.size else torch.zeros(batch_size)

    def step(self, x_prev, state):
        if x_prev is not None:
            state = x_prev.log() if self.kind is LogNormal else x_prev
        return self._around(state), state


X = torch.randint(3, (4, 6), generator=torch.Generator().manual_seed(1))


def test_the_contract_cannot_be_left_half_kept():
    class Half(AutoregressiveModel):
        def forward(self, x, context=None, lengths=None):
            return Categorical(x)

    with pytest.raises(TypeError, match="abstract"):
        Half()


def test_log_prob_is_the_sum_of_the_conditionals_and_sums_to_one():
    model = Counter().double()
    torch.testing.assert_close(model.log_prob(X), model(X).log_prob(X).sum(1))
    every = torch.tensor(list(itertools.product(range(3), repeat=5)))
    assert float(model.log_prob(every).detach().exp().sum()) == pytest.approx(1, abs=1e-12)


def test_log_prob_of_padded_rows_is_that_of_the_rows():
    model, lengths = Counter(), torch.tensor([6, 3, 1, 0])
    padded = X.masked_fill(~length_mask(lengths, 6), 10**9)
    got = model.log_prob(padded, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        expected = model.log_prob(X[row : row + 1, :length]) if length else torch.zeros(1)
        torch.testing.assert_close(got[row : row + 1], expected)
    assert got[3] == 0


def test_forward_never_sees_the_padding():
    model, lengths = Counter(), torch.tensor([0, 2, 6, 4])
    model.log_prob(X.masked_fill(~length_mask(lengths, 6), -1), lengths=lengths)
    assert int(model.received.min()) >= 0
    model.log_prob(torch.full((2, 3), -7), lengths=torch.tensor([0, 0]))
    assert not model.received.any()


@pytest.mark.parametrize("garbage", [torch.nan, torch.inf, -1.0])
@pytest.mark.parametrize(("size", "kind"), [(0, Normal), (3, Normal), (0, LogNormal), (3, LogNormal)])
def test_padding_outside_the_support_touches_neither_values_nor_gradients(size, kind, garbage):
    model = Walk(size, kind)
    x = model.sample(3, length=5, generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([2, 5, 0])
    real = length_mask(lengths, 5).view(3, 5, *[1] * (x.dim() - 2))
    expected = torch.stack([model.log_prob(x[:1, :2])[0], model.log_prob(x[1:2])[0], torch.zeros(())])
    got = model.log_prob(torch.where(real, x, garbage), lengths=lengths)
    torch.testing.assert_close(got, expected)
    wanted, given = (torch.autograd.grad(values.sum(), model.scale)[0] for values in (expected, got))
    torch.testing.assert_close(given, wanted)


def test_lengths_become_a_mask():
    assert length_mask(torch.tensor([0, 1, 3]), 3).tolist() == [[False] * 3, [True, False, False], [True] * 3]


def test_unrolling_is_stepping_whatever_the_chunks():
    model = Counter()
    whole, end = model.unroll(X, model.initial_state(4))
    torch.testing.assert_close(whole.logits, model(X).logits)
    first, state = model.unroll(X[:, :2], model.initial_state(4))
    second, state = model.unroll(X[:, 2:], state, X[:, 1])
    torch.testing.assert_close(torch.cat([first.logits, second.logits], 1), whole.logits)
    assert torch.equal(model.step(X[:, -1], state)[0].logits, model.step(X[:, -1], end)[0].logits)


def test_unrolling_of_values_gives_their_densities():
    for model in (Walk(), Walk(3)):
        x = model.sample(2, length=4)
        conditionals, _ = model.unroll(x, model.initial_state(2))
        torch.testing.assert_close(conditionals.log_prob(x), model(x).log_prob(x))


def test_samples_have_the_frequencies_of_log_prob():
    model = Counter().double()
    drawn = model.sample(20_000, length=3, generator=torch.Generator().manual_seed(0))
    every = torch.tensor(list(itertools.product(range(3), repeat=3)))
    counts = torch.bincount((drawn * torch.tensor([9, 3, 1])).sum(1), minlength=27)
    expected = 20_000 * model.log_prob(every).detach().exp()
    assert ((counts - expected) ** 2 / expected).sum() < 67  # chi-square, 26 degrees: exceeded once in 50,000


def test_greedy_sampling_takes_the_most_probable_each_time():
    model = Counter()
    drawn = model.sample(2, length=6, temperature=0.0)
    assert torch.equal(drawn, model(drawn).logits.argmax(-1))
    assert torch.equal(drawn, model.sample(2, length=6, top_k=1))


def test_a_seed_fixes_the_sample_and_the_world_does_not_matter():
    model = Counter()
    first = model.sample(5, length=7, generator=torch.Generator().manual_seed(3))
    state = torch.get_rng_state()
    torch.manual_seed(77)
    assert torch.equal(first, model.sample(5, length=7, generator=torch.Generator().manual_seed(3)))
    assert not torch.equal(first, model.sample(5, length=7, generator=torch.Generator().manual_seed(4)))
    torch.set_rng_state(state)
    model.sample(5, length=7, generator=torch.Generator().manual_seed(3))
    assert torch.equal(torch.get_rng_state(), state)


def test_the_stream_is_the_sample_without_end():
    model = Counter()
    sample = model.sample(3, length=5, prefix=X[0, :2], generator=torch.Generator().manual_seed(0))
    stream = model.stream(3, prefix=X[0, :2], generator=torch.Generator().manual_seed(0))
    assert torch.equal(torch.stack(list(itertools.islice(stream, 3)), 1), sample[:, 2:])
    assert len(list(itertools.islice(model.stream(1), 300))) == 300


def test_the_stream_leaves_gradients_as_its_reader_has_them():
    stream = Counter().stream(1)
    next(stream)
    assert torch.is_grad_enabled()
    assert not next(stream).requires_grad


@pytest.mark.parametrize("prefix", [X[0, :3], X[:1, :3], X[:, :3]])
def test_a_prefix_is_counted_kept_and_read(prefix):
    model = Counter()
    drawn = model.sample(4, length=6, prefix=prefix, temperature=0.0)
    assert drawn.shape == (4, 6)
    assert torch.equal(drawn[:, :3], prefix.expand(4, 3))
    assert torch.equal(drawn[:, 3:], model(drawn).logits.argmax(-1)[:, 3:])


def test_a_prefix_of_the_whole_length_is_the_sample_and_an_empty_one_is_none():
    model = Counter()
    assert torch.equal(model.sample(4, length=6, prefix=X), X)
    empty = model.sample(4, length=6, prefix=X[0, :0], generator=torch.Generator().manual_seed(0))
    assert torch.equal(empty, model.sample(4, length=6, generator=torch.Generator().manual_seed(0)))


def test_a_prefix_of_vectors_is_kept_and_read():
    model = Walk(3)
    prefix = 100 + torch.randn(2, 2, 3)
    drawn = model.sample(2, length=4, prefix=prefix)
    assert torch.equal(drawn[:, :2], prefix)
    assert (drawn[:, 2:] > 50).all()
    assert torch.equal(model.sample(5, length=4, prefix=prefix[:1])[4, :2], prefix[0])


def test_what_follows_the_end_is_the_end():
    model = Counter()
    drawn = model.sample(200, length=8, eos=1, generator=torch.Generator().manual_seed(0))
    ended = (drawn == 1).cummax(1).values
    assert (drawn[ended] == 1).all()
    assert ended[:, -1].float().mean() > 0.5
    free = model.sample(200, length=8, generator=torch.Generator().manual_seed(0))
    going = torch.cat([torch.ones(200, 1, dtype=torch.bool), ~ended[:, :-1]], 1)
    assert torch.equal(drawn[going], free[going])


def test_a_prefix_that_ends_in_the_end_is_a_sequence_that_has_ended():
    model = Counter()
    prefix = torch.tensor([[0, 1], [1, 2], [2, 0]])
    drawn = model.sample(3, length=6, prefix=prefix, eos=1, generator=torch.Generator().manual_seed(0))
    assert drawn[0].tolist() == [0, 1, 1, 1, 1, 1]
    free = model.sample(3, length=6, prefix=prefix, generator=torch.Generator().manual_seed(0))
    assert torch.equal(drawn[1:, :3], free[1:, :3])  # an end before the last element of a prefix is read over
    assert model.sample(2, length=4, prefix=prefix[0], eos=1).tolist() == [[0, 1, 1, 1]] * 2


def test_a_sample_that_ended_early_has_its_full_length():
    model = Counter()
    with torch.no_grad():
        model.table.copy_(torch.tensor([0.0, 100.0, 0.0]).expand(50, 3))
    assert model.sample(3, length=9, eos=1).tolist() == [[1] * 9] * 3


def test_the_context_of_one_row_is_for_all_and_of_n_rows_for_each():
    model = Counter()
    one = model.sample(3, torch.tensor([[7]]), length=4, temperature=0.0)
    each = model.sample(3, torch.tensor([[7], [7], [21]]), length=4, temperature=0.0)
    assert torch.equal(one[:2], each[:2])
    assert torch.equal(each, model(each, torch.tensor([[7], [7], [21]])).logits.argmax(-1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0, "length": 3}, "n: expected at least 1, got 0"),
        ({"n": 1}, "length: expected the number of elements to draw: this model leaves it open, got None"),
        ({"n": 1, "length": 0}, "length: expected at least 1"),
        ({"n": 1, "length": 2, "prefix": X[0, :3]}, r"length: expected at least 3 \(the prefix is counted\), got 2"),
        ({"n": 1, "length": 3, "prefix": [1, 2]}, "prefix: expected a tensor, got list: make it one with"),
        ({"n": 3, "length": 9, "prefix": X[:2]}, r"prefix: expected shape \(P,\), or 1 or 3 rows, got \(2, 6\)"),
        ({"n": 1, "length": 3, "temperature": -1.0}, "temperature"),
        ({"n": 1, "length": 3, "top_k": 0}, "top_k"),
        ({"n": 1, "length": 3, "top_p": 0.0}, "top_p"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Counter().sample(**arguments)


def test_a_stream_refuses_its_arguments_at_once():
    with pytest.raises(ValueError, match="temperature"):
        Counter().stream(1, temperature=-1.0)


class Columns(Counter):
    """Four elements, visited from the last to the first."""

    sequence_length = 4

    def to_sequence(self, x):
        return x.flip(1)

    def from_sequence(self, sequence):
        return sequence.flip(1)

    def forward(self, x, context=None, lengths=None):
        return Categorical(super().forward(x.flip(1), context, lengths).logits.flip(1))


def test_a_model_of_one_length_needs_no_length_and_takes_no_other():
    model = Columns()
    drawn = model.sample(3, generator=torch.Generator().manual_seed(0))
    assert drawn.shape == (3, 4)
    assert torch.equal(drawn, model.sample(3, length=4, generator=torch.Generator().manual_seed(0)))
    assert len(list(model.stream(1))) == 4
    assert len(list(model.stream(1, prefix=X[0, :3]))) == 1
    with pytest.raises(ValueError, match="length: expected 4, the elements of every x of this model, or None, got 3"):
        model.sample(3, length=3)


def test_samples_are_laid_out_as_x_is_and_prefixes_stand_in_visiting_order():
    model = Columns().double()
    drawn = model.sample(20_000, generator=torch.Generator().manual_seed(0))
    counts = torch.bincount((drawn * torch.tensor([27, 9, 3, 1])).sum(1), minlength=81)
    every = torch.tensor(list(itertools.product(range(3), repeat=4)))
    expected = 20_000 * model.log_prob(every).detach().exp()
    assert ((counts - expected) ** 2 / expected).sum() < 142  # chi-square, 80 degrees: exceeded once in 50,000
    completed = model.sample(5, prefix=torch.tensor([2, 1]), temperature=0.0)
    assert completed[:, 2:].tolist() == [[1, 2]] * 5
    assert torch.equal(completed[:, :2], model(completed).logits.argmax(-1)[:, :2])


def test_lengths_are_counted_in_visiting_order():
    model, x = Columns(), X[:, :4].clone()
    expected = model(x).log_prob(x)[:, 2:].sum(1)
    x[:, :2] = -7
    torch.testing.assert_close(model.log_prob(x, lengths=torch.full((4,), 2)), expected)


def test_a_prepared_step_is_what_sampling_runs():
    class Prepared(Counter):
        def prepare(self):
            scores = torch.tensor([0.0, 0.0, 100.0])
            return Executor(self, lambda x_prev, state: (Categorical(scores.expand(len(state), 3)), state))

    assert Prepared().sample(2, length=3).tolist() == [[2, 2, 2]] * 2


def test_every_earlier_element_is_visible_unless_a_model_says_otherwise():
    assert torch.equal(Counter().visible_past(4), torch.ones(4, 4).tril(-1).bool())


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ([2, 3], "lengths: expected a tensor of integers, got list: make it one with torch.tensor"),
        (torch.tensor([2.0, 3.0]), "lengths: expected integers.*use lengths.long"),
        (torch.tensor([True, False]), r"lengths: expected integers.*mask.sum\(1\)"),
    ],
)
def test_lengths_of_another_kind_are_refused_with_the_remedy(lengths, message):
    with pytest.raises(ValueError, match=message):
        Counter().log_prob(X[:2], None, lengths)
