"""A model that keeps the rules only where it is examined is found out."""

import pytest
import torch
from sound_models import Tiny, TinyBernoulli, TinyNormal
from torch import nn

from chainrule import Executor
from chainrule.models import RecurrentLM
from chainrule.testing import check_model
from chainrule.testing._dependence import check_causality, check_conditions
from chainrule.testing._draws import check_samples_follow_log_prob
from chainrule.testing._invariance import check_batch_independence, check_padding_invariance
from chainrule.testing._stepping import check_step_equals_forward

ROWS, TIME = 6, 12
SYMBOLS = torch.randint(5, (ROWS, TIME), generator=torch.Generator().manual_seed(0))


def leaking(base, when):
    """`base`, whose conditionals read a hundredth of the next element's features where `when(model, x)` says so."""

    class Leaking(base):
        def features(self, x, context=None):
            h = super().features(x, context)
            if when(self, x):
                h = h + 0.05 * self.read(x)[..., :1]
            return h

    return Leaking()


LEAKS = {
    "in training mode": lambda model, x: model.training,
    "with gradients": lambda model, x: torch.is_grad_enabled(),
    "without gradients in training mode": lambda model, x: model.training and not torch.is_grad_enabled(),
    "in float32": lambda model, x: model.start.dtype == torch.float32,
    "at the caller's batch size": lambda model, x: len(x) == ROWS,
    "as it is trained, all at once": lambda model, x: (
        model.training and torch.is_grad_enabled() and len(x) == ROWS and model.start.dtype == torch.float32
    ),
}


@pytest.mark.parametrize("when", LEAKS)
def test_a_leak_is_found_wherever_the_model_is_used(when):
    torch.manual_seed(0)
    for base, x in ((Tiny, SYMBOLS), (TinyNormal, torch.randn(ROWS, TIME)))[: 2 if when == "in float32" else 1]:
        result = check_conditions(leaking(base, LEAKS[when]), x)
        assert not result.ok
        assert "moved by" in result.detail


def test_the_other_checks_do_not_see_these_leaks():
    """Without `check_conditions` a model that leaks in training would pass."""
    assert check_causality(leaking(Tiny, LEAKS["in training mode"]), SYMBOLS).ok


def test_rows_that_influence_each_other_in_the_whole_batch_are_found():
    class Mixing(Tiny):
        def features(self, x, context=None):
            h = super().features(x, context)
            past = h.cumsum(1) - h
            return h + 0.1 * past.mean(0, keepdim=True) if len(x) == ROWS else h

    torch.manual_seed(0)
    result = check_conditions(Mixing(), SYMBOLS)
    assert not result.ok
    assert "when the other rows were replaced" in result.detail


class BatchNormalised(Tiny):
    """Batch statistics in training mode, over rows alone: no element of a row sees a later one of that row."""

    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm1d(8) for _ in range(TIME))

    def features(self, x, context=None):
        h = super().features(x, context)
        return torch.stack([norm(h[:, t]) for t, norm in zip(range(h.shape[1]), self.norms, strict=False)], 1)


def test_rows_that_influence_each_other_in_training_are_found():
    torch.manual_seed(0)
    result = check_conditions(BatchNormalised(), SYMBOLS)
    assert not result.ok
    assert result.detail.startswith("in training mode, ")
    assert "the conditionals of the first row moved by" in result.detail
    assert check_causality(BatchNormalised(), SYMBOLS).ok


class Smoothed(Tiny):
    """Label smoothing in `log_prob` while training: what it returns is no likelihood."""

    def log_prob(self, x, context=None, lengths=None):
        exact = super().log_prob(x, context, lengths)
        if not self.training:
            return exact
        return 0.9 * exact + 0.1 * self(x, context).logits.mean(-1).sum(1)


def test_an_objective_in_place_of_the_likelihood_is_found():
    torch.manual_seed(0)
    result = check_conditions(Smoothed(), SYMBOLS)
    assert not result.ok
    assert "in training mode" in result.detail
    assert "log_prob of row 0" in result.detail


def test_dropout_is_no_leak_and_models_of_any_type_and_batch_pass():
    torch.manual_seed(0)

    class Dropping(Tiny):
        def head(self):
            super().head()
            self.drop = nn.Dropout(0.5)

        def conditional(self, h):
            return super().conditional(self.drop(h))

    assert check_conditions(Dropping(), SYMBOLS).ok
    for model in (RecurrentLM(5, "lstm", hidden_size=8, num_layers=2, dropout=0.5), Tiny().double(), Tiny().bfloat16()):
        result = check_conditions(model, SYMBOLS[:1])
        assert result.ok, result.detail
    assert torch.get_default_dtype() == torch.float32


class ForgetsPadding(Tiny):
    """Reads the padding of rows of more than 16 elements."""

    def forward(self, x, context=None, lengths=None):
        h = self.features(x, context)
        if lengths is not None and x.shape[1] > 20:
            h = h + 0.01 * self.read(x)[:, -1:, :1]
        return self.conditional(h)


class LogProbOfTheBatch(Tiny):
    """Shares what is beyond the sixteenth element among rows."""

    def log_prob(self, x, context=None, lengths=None):
        terms = self(x, context, lengths).log_prob(x)
        return terms[:, :16].sum(1) + terms[:, 16:].sum(1).mean()


class WrongBeyondEight(Tiny):
    """Draws the symbol 2 too often beyond the eighth element."""

    def sample(self, n, context=None, *, length, **options):
        x = super().sample(n, context, length=length, **options)
        x[:, 8:].masked_fill_(torch.rand(x[:, 8:].shape, generator=options["generator"]) < 0.5, 2)
        return x


LONG = torch.randint(5, (4, 24), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    ("model", "check"),
    [
        (ForgetsPadding, check_padding_invariance),
        (LogProbOfTheBatch, check_batch_independence),
        (WrongBeyondEight, check_samples_follow_log_prob),
    ],
)
def test_the_whole_length_is_looked_at(model, check):
    torch.manual_seed(0)
    assert not check(model(), LONG).ok
    assert check(Tiny(), LONG).ok


class TiresLate(RecurrentLM):
    """A prepared step that goes wrong after thirty."""

    def prepare(self):
        taken = 0

        def step(x_prev, state):
            nonlocal taken
            taken = 0 if x_prev is None else taken + 1
            conditional, state = self.step(x_prev, state)
            return (type(conditional)(conditional.logits * 1.01) if taken > 30 else conditional), state

        return Executor(self, step)


class OverwritesState(RecurrentLM):
    """A prepared step that writes into the state it was given."""

    def prepare(self):
        def step(x_prev, state):
            conditional, following = self.step(x_prev, state)
            state.copy_(following)
            return conditional, state

        return Executor(self, step)


@pytest.mark.parametrize(
    ("model", "said"), [(TiresLate, "p(x_31 | x_<31) of prepare().step"), (OverwritesState, "changed the state")]
)
def test_a_prepared_step_that_tires_or_overwrites_is_found(model, said):
    torch.manual_seed(0)
    x = SYMBOLS[:2, :5]
    result = check_step_equals_forward(model(5, "gru", hidden_size=4), x)
    assert not result.ok
    assert said in result.detail
    assert check_step_equals_forward(RecurrentLM(5, "gru", hidden_size=4), x).ok


def ignoring(base, way, ignored):
    def draw(self, *arguments, **options):
        return getattr(base, way)(self, *arguments, **{name: x for name, x in options.items() if name != ignored})

    return type("Ignoring", (base,), {way: draw})


@pytest.mark.parametrize("name", ["temperature", "top_k", "top_p"])
@pytest.mark.parametrize(("base", "way"), [(Tiny, "stream"), (TinyBernoulli, "sample")])
def test_a_filter_that_drawing_ignores_is_found(base, way, name):
    torch.manual_seed(0)
    x = SYMBOLS if base is Tiny else torch.randint(2, (2, 6)).float()
    result = check_samples_follow_log_prob(ignoring(base, way, name)(), x)
    assert not result.ok
    assert name in result.detail


def test_a_filter_ignored_by_an_untrained_model_is_found():
    """Conditionals next to uniform: only what is cut tells, no temperature."""
    torch.manual_seed(0)
    model = ignoring(RecurrentLM, "sample", "top_k")(30, "gru", hidden_size=4)
    assert not check_samples_follow_log_prob(model, torch.randint(30, (2, 6))).ok


def test_the_report_says_what_was_tried():
    report = check_model(RecurrentLM(5, "gru", hidden_size=4), SYMBOLS)
    assert report.ok, report
    assert "7 ways to call it" in report.results[-1].detail
    assert f"{ROWS} rows" in report.results[-1].detail
