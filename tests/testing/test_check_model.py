"""The report is fixed by the arguments, and making it leaves no trace."""

import copy
import random

import numpy
import pytest
import torch
from sound_models import Tiny

from chainrule.models import RecurrentLM
from chainrule.testing import Report, Result, check_model
from chainrule.testing._dependence import check_causality

NAMES = [
    "causality",
    "full_context",
    "step_equals_forward",
    "total_probability",
    "samples_follow_log_prob",
    "batch_independence",
    "padding_invariance",
    "gradients_reach_parameters",
    "save_load",
    "reproducible",
    "chunk_invariance",
    "conditions",
]


def test_every_rule_has_its_row():
    report = check_model(Tiny(), torch.randint(5, (2, 6)))
    assert [result.name for result in report.results] == NAMES
    assert all(result.detail for result in report.results)
    assert len(str(report).splitlines()) == len(NAMES)


def test_the_report_is_fixed_by_the_arguments():
    class Wrong(Tiny):
        def sample(self, n, context=None, **options):
            return super().sample(n, context, **options).clamp_min(1)

    model, x = Wrong(), torch.randint(5, (2, 6))
    first = check_model(model, x, seed=3)
    torch.randn(5), random.random(), numpy.random.rand()
    assert check_model(model, x, seed=3) == first
    assert not first.ok


def test_nothing_is_left_behind():
    model = RecurrentLM(5, "lstm", hidden_size=8, num_layers=2, dropout=0.3).train()
    x = torch.randint(5, (2, 6))
    model.log_prob(x).sum().backward()
    before = copy.deepcopy(model.state_dict())
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    states = torch.get_rng_state(), random.getstate(), numpy.random.get_state()[1].tolist()
    dtype, validation = torch.get_default_dtype(), torch.distributions.Distribution._validate_args
    given = x.clone()
    check_model(model, x)
    assert torch.equal(x, given)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(
        torch.equal(parameter.grad, gradient) and parameter.dtype == torch.float32
        for parameter, gradient in zip(model.parameters(), gradients, strict=True)
    )
    assert torch.equal(torch.get_rng_state(), states[0])
    assert random.getstate() == states[1]
    assert numpy.random.get_state()[1].tolist() == states[2]
    assert (torch.get_default_dtype(), torch.distributions.Distribution._validate_args) == (dtype, validation)


def test_it_works_where_gradients_are_switched_off_and_leaves_them_off():
    with torch.no_grad():
        assert check_model(Tiny(), torch.randint(5, (2, 6))).ok
        assert not torch.is_grad_enabled()


def test_inference_mode_is_refused_and_no_fault_of_the_model():
    """A correct model was said to have weights that training never moves."""
    with torch.inference_mode(), pytest.raises(ValueError, match=r"torch\.inference_mode disables them"):
        check_model(Tiny(), torch.randint(5, (2, 6)))


def test_a_model_that_holds_a_graph_can_be_examined():
    model = Tiny()
    model.last = model(torch.randint(5, (2, 6))).logits
    assert check_causality(model, torch.randint(5, (2, 6))).ok


def test_an_error_of_the_model_is_a_failure_with_its_message():
    class Raises(Tiny):
        def forward(self, x, context=None, lengths=None):
            raise RuntimeError("no\nmemory")

    result = check_causality(Raises(), torch.randint(5, (2, 6)))
    assert not result.ok
    assert "RuntimeError: no memory" in result.detail


def test_an_answer_of_another_shape_is_a_failure_that_says_so():
    class LastOnly(Tiny):
        def forward(self, x, context=None, lengths=None):
            return self.conditional(self.features(x)[:, -1])

    class Scores(Tiny):
        def forward(self, x, context=None, lengths=None):
            return self.output(self.features(x))

    assert "batch shape (B, T) = (2, 6)" in check_causality(LastOnly(), torch.randint(5, (2, 6))).detail
    assert "expected a torch Distribution, got Tensor" in check_causality(Scores(), torch.randint(5, (2, 6))).detail


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.nn.Linear(1, 1), torch.zeros(2, 3)), "model: expected an AutoregressiveModel or a LatentModel or"),
        ((None, torch.zeros(3)), "x: expected a tensor of shape"),
        ((None, torch.zeros(2, 0)), "x: expected a tensor of shape"),
        ((None, torch.zeros(3, 2), torch.zeros(2, 1)), "context: expected 3 rows"),
        ((None, torch.zeros(3, 2), None, torch.tensor([1, 2])), "lengths: expected 3 integers"),
        ((None, torch.zeros(3, 2), None, torch.tensor([1, 2, 3])), r"lengths: expected values in \[0, 2\]"),
        ((None, torch.zeros(3, 2), None, torch.tensor([0, 0, 0])), "not all 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments, message):
    model, *others = arguments
    with pytest.raises(ValueError, match=message):
        check_model(model or Tiny(), *others)


def test_a_report_is_a_table():
    report = Report([Result("a", True, "x"), Result("bc", False, "y"), Result("d", True, "z", applies=False)])
    assert not report.ok
    assert [result.name for result in report.failures] == ["bc"]
    assert str(report).splitlines() == ["a   pass  x", "bc  FAIL  y", "d    --   z"]
