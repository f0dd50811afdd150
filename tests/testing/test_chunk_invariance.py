"""An unroll that depends on where the chunks end is found."""

import pytest
import torch
from sound_models import Tiny

from chainrule.heads import Categorical
from chainrule.state import Memory, Shared
from chainrule.testing import check_model
from chainrule.testing._stepping import check_chunk_invariance

X = torch.randint(5, (3, 9), generator=torch.Generator().manual_seed(0))


class OnePass(Tiny):
    """A sound `unroll` of its own."""

    def unroll(self, x, state, x_prev=None):
        first = self.start.expand(len(x), -1) if x_prev is None else self.read(x_prev)
        inputs = torch.cat([first.unsqueeze(1), self.read(x)[:, :-1]], 1)
        states = []
        for t in range(x.shape[1]):
            state = self.cell(inputs[:, t], state)
            states.append(state)
        return self.conditional(torch.stack(states, 1)), state


class IgnoresState(OnePass):
    def unroll(self, x, state, x_prev=None):
        return super().unroll(x, self.initial_state(len(x)), x_prev)


class ReadsLastToo(OnePass):
    """The state has read the last element, which the next chunk reads again."""

    def unroll(self, x, state, x_prev=None):
        conditionals, state = super().unroll(x, state, x_prev)
        return conditionals, self.cell(self.read(x[:, -1]), state)


class SingleElements(OnePass):
    """Wrong for chunks of one element."""

    def unroll(self, x, state, x_prev=None):
        conditionals, following = super().unroll(x, state, x_prev)
        return conditionals, state if x.shape[1] == 1 else following


class LongChunks(OnePass):
    """Forgets in chunks of more than 4."""

    def unroll(self, x, state, x_prev=None):
        conditionals, following = super().unroll(x, state, x_prev)
        return conditionals, following * (x.shape[1] <= 4)


class Overwrites(OnePass):
    def unroll(self, x, state, x_prev=None):
        conditionals, following = super().unroll(x, state, x_prev)
        state.copy_(following)
        return conditionals, following


class OtherThanForward(OnePass):
    """The same for every chunking, and another function."""

    def unroll(self, x, state, x_prev=None):
        conditionals, state = super().unroll(x, state, x_prev)
        return type(conditionals)(0.9 * conditionals.logits), state


class ShuffledRows(OnePass):
    """Returns the rows of the state in another order."""

    def unroll(self, x, state, x_prev=None):
        conditionals, state = super().unroll(x, state, x_prev)
        return conditionals, state.roll(1, 0)


def test_a_sound_unroll_passes():
    assert check_chunk_invariance(OnePass(), X).ok


@pytest.mark.parametrize(
    "broken",
    [
        IgnoresState,
        ReadsLastToo,
        SingleElements,
        LongChunks,
        Overwrites,
        OtherThanForward,
        ShuffledRows,
    ],
)
def test_a_chunk_boundary_that_matters_is_named(broken):
    assert not check_chunk_invariance(broken(), X).ok


def test_only_rules_that_rest_on_unroll_fail_with_it():
    failed = {result.name for result in check_model(OtherThanForward(), X).failures}
    assert "chunk_invariance" in failed
    assert failed <= {"chunk_invariance", "samples_follow_log_prob"}  # a prefix is read by unroll


class BadMemory(OnePass):
    """Reads the memory of the first row in all rows where it is shared."""

    def initial_state(self, batch_size, context=None):
        return {"h": super().initial_state(batch_size), "memory": Memory(of=torch.arange(batch_size) / 8)}

    def remembered(self, scores, memory):
        of = memory.values["of"][:1].expand(len(memory.rows)) if isinstance(memory, Shared) else memory["of"]
        return Categorical(scores.logits + of.view(-1, *[1] * (scores.logits.dim() - 1)) * torch.arange(5.0))

    def unroll(self, x, state, x_prev=None):
        scores, h = super().unroll(x, state["h"], x_prev)
        return self.remembered(scores, state["memory"]), {**state, "h": h}

    def step(self, x_prev, state):
        scores, h = super().step(x_prev, state["h"])
        return self.remembered(scores, state["memory"]), {**state, "h": h}

    def forward(self, x, context=None, lengths=None):
        return self.unroll(x, self.initial_state(len(x)))[0]


class ShortPrefix(OnePass):
    def useful_prefix(self, drawn):
        return 1


WRONG_HOOKS = {
    BadMemory: "share_memories",
    ShortPrefix: "useful_prefix",
}


@pytest.mark.parametrize("broken", WRONG_HOOKS)
def test_a_method_that_searches_and_long_prompts_rely_on_is_held_to_the_contract(broken):
    result = check_chunk_invariance(broken(), X)
    assert not result.ok
    assert WRONG_HOOKS[broken] in str(result), result
