"""The two forms of a likelihood of labels are one."""

import torch

from chainrule.testing._agreement import TOLERANCE, require_equal, trials
from chainrule.testing._contract_check import contract_check
from chainrule.testing._isolation import as_called
from chainrule.testing._label_subject import LabelSubject
from chainrule.testing._subject import Batch, in_type, independent_copy


@contract_check(LabelSubject)
@torch.no_grad()
def check_log_prob_is_that_of_forward(subject: LabelSubject) -> str:
    """`log_prob` is that of the distribution which `forward` returns, in float64 and in the model's own number type."""
    batch = subject.batch()
    for label, model, _ in trials(subject, batch):
        message = f"{label}log_prob of row {{row}} is {{gap}} nats off that of forward"
        require_equal(subject.numbers(batch, model), subject.further(batch, model)["forward"], TOLERANCE, message)
    own, narrow = independent_copy(subject.original, double=False), subject.own_type
    with as_called():
        batch = Batch(*in_type(tuple(batch._replace(x=subject.x.unsqueeze(1))), narrow))
        got, expected = subject.numbers(batch, own), subject.further(batch, own)["forward"]
    message = f"in {narrow}, log_prob of row {{row}} is {{gap}} nats off that of forward"
    require_equal(got.double(), expected.double(), 200 * torch.finfo(narrow).eps, message)
    return f"{subject.probes.shape[1]} values of y, and the rows' own in {narrow}".replace("torch.", "")
