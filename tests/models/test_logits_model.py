"""A module that maps symbols to logits becomes a model of sequences, by any of the ways in which modules answer."""

from types import SimpleNamespace
from typing import NamedTuple

import pytest
import torch
from torch import nn

from chainrule import from_logits
from chainrule.decoding import beam_search

X = torch.tensor([[1, 2, 3, 0], [4, 4, 0, 2]])


class Recurrence(nn.Module):
    """The cumulative sum of embeddings, through a nonlinearity, with the sum as a cache."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding, self.output = nn.Embedding(5, 4), nn.Linear(4, 5)

    def logits(self, x, total):
        totals = self.embedding(x).cumsum(1) + (0 if total is None else total.unsqueeze(1))
        return self.output(totals.tanh()), totals[:, -1]

    def forward(self, x):
        return self.logits(x, None)[0]


class Answer(NamedTuple):
    loss: None
    logits: torch.Tensor


ANSWERS = {
    "tuple": lambda logits: (logits, None),
    "named tuple": lambda logits: Answer(None, logits),
    "dict": lambda logits: {"loss": None, "logits": logits},
    "object": lambda logits: SimpleNamespace(logits=logits),
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_logits_are_found_in_any_answer(answer):
    class Wrapped(Recurrence):
        def forward(self, x):
            return ANSWERS[answer](super().forward(x))

    assert torch.equal(from_logits(Wrapped()).log_prob(X), from_logits(Recurrence()).log_prob(X))


def terms(logits, x):
    return logits.log_softmax(-1).gather(2, x.unsqueeze(2)).squeeze(2)


def test_the_first_symbol_is_uniform_or_follows_a_start_symbol():
    module = Recurrence()
    behind = terms(module(X)[:, :-1], X[:, 1:]).sum(1)
    torch.testing.assert_close(from_logits(module).log_prob(X), behind - torch.tensor(5.0).log())
    begun = torch.cat([torch.full((2, 1), 3), X[:, :-1]], 1)
    torch.testing.assert_close(from_logits(module, start=3).log_prob(X), terms(module(begun), X).sum(1))


def test_a_module_that_shifts_itself_predicts_in_place():
    class SelfShifted(Recurrence):
        def forward(self, x):
            return super().forward(torch.cat([x.new_zeros(len(x), 1), x[:, :-1]], 1))

    expected = from_logits(Recurrence(), start=0).log_prob(X)
    torch.testing.assert_close(from_logits(SelfShifted(), shifted=False).log_prob(X), expected)


class ByTuple(Recurrence):
    def forward(self, x, state=None):
        return self.logits(x, state)


class LayersFirst(Recurrence):
    """The batch is the second axis of its cache, and its heads are folded into it."""

    def forward(self, x, hidden=None):
        total = None if hidden is None else hidden[0].unflatten(0, (len(x), 2)).flatten(1)
        logits, total = self.logits(x, total)
        return logits, total.unflatten(1, (2, 2)).flatten(0, 1)[None]


class WrittenInto(Recurrence):
    """A table of all totals with a counter, both changed in place."""

    def forward(self, x, cache=None):
        cache = cache or SimpleNamespace(totals=torch.zeros(len(x), 9, 4), names={"count": 0})
        count = cache.names["count"]
        logits, _ = self.logits(x, cache.totals[:, count - 1].clone() if count else None)
        for t in range(x.shape[1]):
            cache.totals[:, count + t] = self.logits(x[:, : t + 1], cache.totals[:, count - 1] if count else None)[1]
        cache.names["count"] += x.shape[1]
        return {"logits": logits, "cache": cache}


class Required(Recurrence):
    """Its cache has no default."""

    def forward(self, x, hidden):
        logits, total = self.logits(x, hidden)
        return logits, None, total


@pytest.mark.parametrize("kind", [ByTuple, LayersFirst, WrittenInto, Required])
def test_any_cache_gives_what_reading_again_gives(kind):
    model, again = from_logits(kind(), start=0), from_logits(Recurrence(), start=0)
    assert model.call.has_cache
    assert not again.call.has_cache
    with torch.no_grad():
        assert torch.equal(model.log_prob(X), again.log_prob(X))
        _, state = model.unroll(X[:, :2], model.initial_state(2))
        kept = model.step(X[:, 1], state)[0].logits
        torch.testing.assert_close(kept, again(X).logits[:, 2])
        assert torch.equal(model.step(X[:, 1], state)[0].logits, kept)  # the state was not written into
    samples = [m.sample(50, length=6, generator=torch.Generator().manual_seed(0)) for m in (model, again)]
    assert torch.equal(*samples)


def test_beam_search_reads_from_the_cache():
    found = [
        beam_search(from_logits(kind(), start=0), beam_size=3, max_length=5, eos=1)[0]
        for kind in (ByTuple, LayersFirst, Recurrence)
    ]
    assert len({tuple(decoded.sequences[0].tolist()) for decoded in found}) == 1
    torch.testing.assert_close(found[0].log_probs, found[2].log_probs)


def test_a_step_is_a_method_or_a_function_that_is_given_the_module():
    class Stepping(Recurrence):
        def one_more(self, x, cache):
            logits, total = self.logits(x, cache)
            return logits[:, 0], {"total": total}["total"]

    module = Stepping()
    steps = (module.one_more, Stepping.one_more, lambda module, x, cache: module.logits(x, cache))
    for step in steps:
        model = from_logits(module, start=0, step=step)
        torch.testing.assert_close(model.unroll(X, model.initial_state(2))[0].log_prob(X).sum(1), model.log_prob(X))


def test_a_module_of_fixed_length_is_padded():
    class Fixed(Recurrence):
        def forward(self, x):
            return super().forward(x) + torch.zeros(6, 1)

    model = from_logits(Fixed(), start=0, length=6)
    torch.testing.assert_close(model.log_prob(X), from_logits(Recurrence(), start=0).log_prob(X))
    assert model.sample(2, length=6).shape == (2, 6)
    with pytest.raises(ValueError, match="module: expected one that maps"):
        from_logits(Fixed(), start=0)


def test_lengths_become_an_attention_mask():
    class Masked(Recurrence):
        def forward(self, input_ids, attention_mask=None, position_ids=None):
            self.told = None if attention_mask is None else (attention_mask.tolist(), position_ids.tolist())
            return super().forward(input_ids)

    module = Masked()
    model, lengths = from_logits(module, start=0), torch.tensor([4, 2])
    expected = from_logits(Recurrence(), start=0).log_prob(X, None, lengths)
    assert torch.equal(model.log_prob(X, None, lengths), expected)
    assert module.told == ([[1, 1, 1, 1], [1, 1, 1, 0]], [[0, 1, 2, 3], [0, 1, 2, 2]])


def test_lengths_are_passed_on_and_logits_may_end_with_the_longest_row():
    class Packed(Recurrence):
        def forward(self, x, lengths):
            return super().forward(x[:, : int(lengths.max())])

    model, lengths = from_logits(Packed(), start=0), torch.tensor([3, 2])
    expected = from_logits(Recurrence(), start=0)
    assert torch.equal(model.log_prob(X, None, lengths), expected.log_prob(X, None, lengths))
    assert torch.equal(model.log_prob(X), expected.log_prob(X))


def test_logits_of_a_part_are_refused():
    class Cropped(Recurrence):
        def forward(self, x):
            return super().forward(x[:, -3:])

    with pytest.raises(ValueError, match=r"module: expected logits of shape \(2, 4, 5\), got \(2, 3, 5\)"):
        from_logits(Cropped(), start=0).log_prob(X)


def test_training_the_model_trains_the_module():
    module = Recurrence()
    from_logits(module).log_prob(X).sum().backward()
    assert module.embedding.weight.grad.any()


def test_adapting_leaves_the_module_as_it_was():
    module = nn.Sequential(nn.Embedding(5, 4), nn.BatchNorm1d(2), nn.Dropout(), nn.Linear(4, 5)).train()
    module[2].eval()
    state = torch.get_rng_state()
    from_logits(module, length=2)
    assert not module[1].num_batches_tracked
    assert [part.training for part in module] == [True, True, False, True]
    assert torch.equal(torch.get_rng_state(), state)


class TimeFirst(Recurrence):
    def forward(self, x):
        return super().forward(x).transpose(0, 1)


class ChannelsFirst(Recurrence):
    def forward(self, x):
        return super().forward(x).transpose(1, 2)


class LastAlone(Recurrence):
    def forward(self, x):
        return super().forward(x)[:, -1:]


class Classes(Recurrence):
    def forward(self, x):
        return super().forward(x)[:, -1]


class GrowingCache(Recurrence):
    """A tensor for each row: a state must have as many for any batch."""

    def forward(self, x, cache=None):
        logits, total = self.logits(x, None if cache is None else torch.stack(cache))
        return logits, list(total)


class Empty(Recurrence):
    def forward(self, x):
        return None


@pytest.mark.parametrize(
    ("module", "options", "message"),
    [
        (
            TimeFirst,
            {},
            r"expected logits \(B, T, V\) for every one of \(B, T\) = \(3, 2\) symbols, got shape \(2, 3, 5\)",
        ),
        (ChannelsFirst, {}, r"got shape \(3, 5, 2\): wrap it"),
        (LastAlone, {}, r"got shape \(3, 1, 5\): wrap it"),
        (Classes, {}, r"got shape \(3, 5\): wrap it"),
        (Empty, {}, "module: expected one that maps .* it raised ValueError: expected logits, .* got NoneType"),
        (GrowingCache, {}, r"module: `cache` cannot be used as a cache \(ValueError: .*\); pass cache=False"),
        (Recurrence, {"start": 5}, r"start: expected a symbol in \[0, 5\), got 5"),
        (Recurrence, {"start": 0, "shifted": False}, "start: expected None with shifted=False"),
        (Recurrence, {"step": Recurrence.logits, "shifted": False}, "step: expected None with shifted=False"),
        (Recurrence, {"step": lambda x, cache: None}, "step: expected a method of the module, or a function"),
        (Recurrence, {"window": -1}, "window: expected at least 0 symbols, or None for all, got -1"),
    ],
)
def test_invalid_arguments_raise(module, options, message):
    with pytest.raises(ValueError, match=message):
        from_logits(module(), **options)
