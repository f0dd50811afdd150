"""Any module that maps symbols to logits can be checked, and its faults are named."""

import copy

import pytest
import torch
from foreign_modules import GPT, LSTM, VOCABULARY, CachedGPT, CausalLM, NanoGPT, OneByOne
from torch import nn
from torch.nn import functional as F

from chainrule import from_logits
from chainrule.models import RecurrentLM
from chainrule.testing import check
from chainrule.testing._contract import CHECKS

X = torch.randint(VOCABULARY, (3, 6), generator=torch.Generator().manual_seed(0))


def checked(module, *names, x=X, **options):
    """Run the named checks on a module; return the report, and its results by name."""
    kept = tuple(one for one in CHECKS if one.__name__.removeprefix("check_") in names)
    assert len(kept) == len(names)
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("chainrule.testing._contract.CHECKS", kept)
        report = check(module() if isinstance(module, type) else module, x, **options)
    return report, {result.name: result for result in report.results}


def variant(base, **attributes):
    return type(base.__name__, (base,), attributes)


class Unsliced(GPT):
    """Adds all of its positions, and so takes six symbols and no other number."""

    def __init__(self):
        super().__init__(block_size=6)

    def embed(self, idx, positions):
        return self.wte(idx) + self.wpe.weight


class ByHand(GPT):
    """Reads from a cache by a method of its own."""

    def decode(self, idx, cache):
        seen, past = cache or (0, None)
        logits, new = self.read(idx, seen, past)
        return logits[:, -1], (seen + 1, new)


OF_CACHES = ("step_equals_forward", "samples_follow_log_prob", "chunk_invariance")
EVERY = [one.__name__.removeprefix("check_") for one in CHECKS]


@pytest.mark.parametrize(
    ("module", "names", "how"),
    [
        (GPT, EVERY, "no cache"),
        pytest.param(NanoGPT, OF_CACHES, "no cache", marks=pytest.mark.slow),
        (CachedGPT, OF_CACHES, "through `cache`"),
        pytest.param(OneByOne, OF_CACHES, "through `cache`", marks=pytest.mark.slow),
        (CausalLM, EVERY, "through `past_key_values`"),
        (LSTM, OF_CACHES, "through `hidden`"),
        pytest.param(Unsliced, EVERY, "no cache", marks=pytest.mark.slow),
    ],
)
def test_sound_modules_pass_and_their_cache_is_used(module, names, how):
    report, results = checked(module, *names)
    assert report.ok, report
    assert results["shift"].detail == "logits[:, t] predict x[:, t+1], as found by replacing symbols"
    assert results["step_equals_forward"].detail.startswith(how)
    if names is EVERY:
        assert results["left_padding"].applies == (module is CausalLM)


@pytest.mark.parametrize("options", [{"start": 0}, {"cache": False}, {"shifted": True}])
def test_options_are_those_of_from_logits(options):
    report, results = checked(CachedGPT, *OF_CACHES, **options)
    assert report.ok, report
    assert results["step_equals_forward"].detail.startswith("no cache" if "cache" in options else "through `cache`")


def test_a_step_of_the_module_is_checked():
    module = ByHand()
    for step in (module.decode, ByHand.decode):
        report, _ = checked(module, *OF_CACHES, step=step)
        assert report.ok, report
    module.position_error = 1
    report, _ = checked(module, "step_equals_forward", step=module.decode)
    assert [failure.name for failure in report.failures] == ["step_equals_forward"]


class LaterByOne(GPT):
    """Logits moved by one place: those at t have seen what they predict."""

    def forward(self, idx):
        logits = super().forward(idx)
        return torch.cat([logits[:, 1:], logits[:, -1:]], 1)


class Bidirectional(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.output = nn.Embedding(VOCABULARY, 6), nn.Linear(12, VOCABULARY)
        self.lstm = nn.LSTM(6, 6, batch_first=True, bidirectional=True)

    def forward(self, x):
        return self.output(self.lstm(self.embedding(x))[0])


@pytest.mark.parametrize(
    ("module", "furthest"),
    [
        (variant(GPT, lookahead=64), 5),
        (variant(CausalLM, lookahead=64), 5),
        (variant(GPT, lookahead=1), 2),
        (LaterByOne, 1),
        (Bidirectional, 5),
    ],
)
def test_a_leak_is_named(module, furthest):
    """Two blocks whose masks are off by one look two symbols ahead."""
    _, results = checked(module, "causality")
    assert not results["causality"].ok
    assert results["causality"].detail.startswith("leak: the future influences the past: p(x_1 | x_<1) moved")
    assert not results["shift"].applies
    assert f"logits[:, t] depend on symbols up to x[:, t+{furthest}]" in results["shift"].detail


class SelfShifted(GPT):
    """Shifts its input itself, behind a symbol 0."""

    def forward(self, idx):
        return super().forward(F.pad(idx[:, :-1], (1, 0)))


class ShiftedTwice(SelfShifted):
    def forward(self, idx):
        return super().forward(F.pad(idx[:, :-1], (1, 0)))


def test_a_module_that_shifts_its_input_is_recognised():
    report, results = checked(SelfShifted, *OF_CACHES, "causality", "full_context")
    assert report.ok, report
    assert results["shift"].detail == "logits[:, t] predict x[:, t], as found by replacing symbols"
    assert checked(SelfShifted, "causality", "full_context", shifted=False)[0].ok


def test_a_wrong_shift_is_named():
    _, results = checked(SelfShifted, shifted=True)
    assert not results["shift"].ok
    assert results["shift"].detail.endswith("they predict x[:, t]; pass shifted=False")
    _, results = checked(GPT, shifted=False)
    assert not results["shift"].ok
    assert results["shift"].detail.endswith("they predict x[:, t+1]; pass shifted=True")
    _, results = checked(ShiftedTwice)
    assert not results["shift"].ok
    assert results["shift"].detail == "logits[:, t] never see x[:, t-1], but nothing later than x[:, t-2]"


class Normalised(GPT):
    """Batch normalisation over rows, place by place: nothing leaks along a row."""

    def __init__(self):
        super().__init__()
        self.batch_norm = nn.BatchNorm1d(8)

    def embed(self, idx, positions):
        x = super().embed(idx, positions)
        return torch.stack([self.batch_norm(x[:, t]) for t in range(x.shape[1])], 1)


class Centred(GPT):
    """Minus the mean of the rows, in evaluation too."""

    def embed(self, idx, positions):
        x = super().embed(idx, positions)
        return x - x.mean(0, keepdim=True) / 2


def test_rows_that_influence_each_other_are_named():
    _, results = checked(Centred, "batch_independence", "causality")
    assert results["batch_independence"].detail.startswith("rows of a batch influence each other: ")
    assert results["causality"].ok
    _, results = checked(Normalised, *EVERY)
    assert [result.name for result in results.values() if not result.ok] == ["conditions"]
    assert "in training mode" in results["conditions"].detail
    assert "the first row moved" in results["conditions"].detail
    assert "when the other rows were replaced" in results["conditions"].detail


SeesLeftPadding = variant(CausalLM, marked=lambda self, mask: None)
SeesPaddingAlone = variant(CausalLM, marked=lambda self, mask: None if mask is None else 1 - mask)


class CountsLeftPadding(CausalLM):
    """Ignores `position_ids`."""

    def forward(self, input_ids, attention_mask=None, past_key_values=None, use_cache=None):
        return super().forward(input_ids, attention_mask, None, past_key_values, use_cache)


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (SeesLeftPadding, ["left_padding"]),
        (CountsLeftPadding, ["left_padding"]),
        (SeesPaddingAlone, ["padding_invariance", "left_padding"]),
    ],
)
def test_padding_that_influences_symbols_is_named(module, names):
    report, results = checked(module, "padding_invariance")
    assert [result.name for result in report.failures] == names
    assert results["left_padding"].detail.startswith("padding influences the symbols after it: logits at ")


class Encoder(nn.Module):
    """Of torch, whose mask is true at padding."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.embedding, self.output = nn.Embedding(VOCABULARY, 8), nn.Linear(8, VOCABULARY)
        self.stack = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x, key_padding_mask=None):
        later = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        return self.output(self.stack(self.embedding(x), later, self.marked(key_padding_mask)))

    def marked(self, key_padding_mask):
        return key_padding_mask


ForgetfulEncoder = variant(Encoder, marked=lambda self, key_padding_mask: None)


def test_a_mask_of_torch_is_understood():
    report, results = checked(Encoder, "padding_invariance")
    assert report.ok, report
    assert results["left_padding"].applies
    assert [result.name for result in checked(ForgetfulEncoder, "padding_invariance")[0].failures] == ["left_padding"]


class OtherHidden(LSTM):
    """Returns the cell state of the wrong layer first."""

    def forward(self, x, hidden=None):
        logits, (h, c) = super().forward(x, hidden)
        return logits, (h, c.flip(0))


@pytest.mark.parametrize(
    "module",
    [
        variant(CachedGPT, position_error=-1),
        variant(CausalLM, position_error=1),
        variant(CachedGPT, kept=3),
        variant(CausalLM, kept=4),
        OtherHidden,
    ],
)
def test_a_cache_that_disagrees_is_named(module):
    report, results = checked(module, "step_equals_forward", "causality")
    assert results["step_equals_forward"].detail.startswith("the cache disagrees with the full pass: ")
    assert [result.name for result in report.failures] == ["step_equals_forward"]


def test_a_cache_that_disagrees_breaks_the_rules_of_caches_alone():
    module = variant(CachedGPT, position_error=-1)
    assert {result.name for result in checked(module, *EVERY)[0].failures} <= set(OF_CACHES)
    assert checked(module, *OF_CACHES, cache=False)[0].ok


class UnmaskedAfterCache(CachedGPT):
    """Right about one symbol after a cache; several see each other."""

    def masked(self, time, seen):
        return super().masked(time, seen) | bool(seen)


def test_a_cache_that_is_wrong_about_several_symbols_is_named():
    report, results = checked(UnmaskedAfterCache, *OF_CACHES)
    assert [result.name for result in report.failures] == ["chunk_invariance"]
    assert results["chunk_invariance"].detail.startswith("the cache disagrees with the full pass: chunks of 3+3")


class LengthDependent(GPT):
    """Counts places from the end."""

    def embed(self, idx, positions):
        return super().embed(idx, positions.flip(0))


def test_a_beginning_that_differs_on_its_own_is_named():
    _, results = checked(LengthDependent, "step_equals_forward")
    assert results["step_equals_forward"].detail.startswith("a prefix alone has other logits: ")


class Convolution(nn.Module):
    def __init__(self, window=3):
        super().__init__()
        self.embedding, self.conv = nn.Embedding(VOCABULARY, 6), nn.Conv1d(6, VOCABULARY, window)

    def forward(self, x):
        features = self.embedding(x).transpose(1, 2)
        return self.conv(F.pad(features, (self.conv.kernel_size[0] - 1, 0))).transpose(1, 2)


def test_a_limited_context_passes_and_is_said():
    report, results = checked(Convolution, "causality", "full_context")
    assert report.ok, report
    assert results["full_context"].detail.startswith("each conditional sees the last 3 symbols only: ")
    assert checked(Convolution(20), "full_context", x=torch.arange(24).repeat(2, 1) % VOCABULARY)[0].ok
    assert checked(from_logits(Convolution(), window=3), "full_context")[0].ok
    assert not checked(from_logits(Convolution(), window=4), "full_context")[0].ok


def test_logits_that_depend_on_nothing_are_named():
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.logits = nn.Parameter(torch.randn(VOCABULARY))

        def forward(self, x):
            return self.logits.expand(*x.shape, -1)

    _, results = checked(Constant, "full_context")
    assert not results["shift"].applies
    assert results["full_context"].detail.startswith("part of the past is never read: ")


def test_a_module_that_is_random_is_not_accused_of_a_leak():
    class Random(GPT):
        def forward(self, idx):
            return F.dropout(super().forward(idx), 0.5)

    report, results = checked(Random, "causality", "reproducible")
    assert not results["reproducible"].ok
    assert results["shift"].detail == "does not apply: the same input has other logits (see reproducible)"
    assert "leak" not in str(report)


def test_a_model_of_the_contract_is_checked_as_such():
    report, _ = checked(RecurrentLM(VOCABULARY, cell="gru", hidden_size=8), "causality")
    assert report.ok, report
    assert [result.name for result in report.results] == ["causality"]
    with pytest.raises(ValueError, match="expected none of them for a model that keeps the contract"):
        check(from_logits(GPT()), X, start=0)


def test_the_module_is_left_as_it_was():
    module = Normalised().train()
    before, state = copy.deepcopy(module.state_dict()), torch.get_rng_state()
    check(module, X)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert all(part.training for part in module.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_bytes_are_symbols_too():
    assert checked(CachedGPT, "causality", "step_equals_forward", x=X.to(torch.uint8))[0].ok


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ([[0, 1]], "example: expected integer symbols of shape \\(B, T\\), T at least 2, got list"),
        (X[0], "example: expected integer symbols of shape"),
        (X[:, :1], "example: expected integer symbols of shape"),
        (X.float(), "example: expected integer symbols of shape .* torch.float32"),
        (X[:0], r"example: expected symbols in \[0, 5\)"),
        (X - 1, r"example: expected symbols in \[0, 5\)"),
        (X + 4, r"example: expected symbols in \[0, 5\)"),
        (X.repeat(1, 12), r"example: for shape \(1, 72\) the module raised IndexError: "),
    ],
)
def test_invalid_examples_raise(example, message):
    with pytest.raises(ValueError, match=message):
        check(GPT(), example)
