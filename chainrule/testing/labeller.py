"""All checks of a model of labels at once."""

from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor
from torch.distributions import Distribution

from chainrule.base import Context, LikelihoodModel, length_mask
from chainrule.state import expand, leaves, map_state, select
from chainrule.testing.agreement import TOLERANCE, require_equal
from chainrule.testing.gradients import Attempt, require_gradients
from chainrule.testing.isolation import as_called, reseed
from chainrule.testing.label_subject import LabelSubject, label_check
from chainrule.testing.leaves import changed, snapshot
from chainrule.testing.report import Report
from chainrule.testing.saving import save_and_load
from chainrule.testing.subject import OPERATIONS, DoesNotApply, Violation, independent_copy, number_type
from chainrule.testing.values import distance
from chainrule.testing.weights import biased, fresh, jittered, refilled, remembering, sharp, uneven

_SUM = 1e-6  # for sums over listed labels: rounding in float64 is far below
_MOST_LISTED = 4096


def check_labeller(
    model: LikelihoodModel, y: Tensor, context: Context, lengths: Tensor | None = None, *, seed: int = 0
) -> Report:
    """Test that a model of labels p(y | x) keeps its contract, on the given rows.

    `forward(context)`, or `forward(context, lengths)` where every element has a label, returns the distribution of the
    labels, and `log_prob(y, context, lengths)` is its log-probability. Labels sum to 1 where they can be listed (all
    tags of a short beginning), rows do not depend on each other nor on padding, gradients reach every parameter, a
    saved model is the same model, and answers repeat. For models of sequences there is `check_model`.

    Every check works on a copy of its own in float64 and evaluation mode; the model and the global random state are
    left as they are. The answer is fixed by the arguments. Of more than 4 rows the first 4 are used.

    Args:
        model: any `LikelihoodModel` of labels.
        y: (B,) a label of each row, (B, T) of each element, or numbers.
        context: the inputs x, batch first; `context["lengths"]` says how long they are where y has no time axis.
        lengths: (B,) labelled elements of each row.
        seed: of every random choice of the checks.

    Returns:
        A report with `.ok` and `.results`, as that of `check_model`.

    Raises:
        ValueError: the arguments do not fit together.

    >>> from chainrule.models import SequenceTagger
    >>> tagger = SequenceTagger(num_tags=3, vocab_size=5, embedding_size=4, hidden_size=4)
    >>> words = torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]])
    >>> check_labeller(tagger, words % 3, words, torch.tensor([4, 2])).ok
    True
    """
    return Report([check(model, y, context, lengths, seed=seed) for check in LABEL_CHECKS])


@label_check
@torch.no_grad()
def check_log_prob_is_that_of_forward(subject: LabelSubject) -> str:
    """`log_prob` is that of the distribution which `forward` returns, in float64 and in the model's own number type."""
    for label, model, _ in weighted_models(subject):
        expected = _of_forward(subject.distribution(subject.context, subject.lengths, model), subject.probes)
        got = subject.row_numbers(subject.rows, model=model)
        require_equal(got, expected, 1e-9, f"{label}log_prob of row {{row}} is {{gap}} nats off that of forward")
    own = independent_copy(subject.original, double=False)
    narrow = number_type(own)
    with as_called():
        context = map_state(lambda leaf: _in_type(leaf, narrow), subject.context)
        y = [_in_type(subject.y, narrow)]
        got = subject.numbers(context, subject.lengths, probes=y, model=own)
        expected = _of_forward(subject.distribution(context, subject.lengths, own), y)
    message = f"in {narrow}, log_prob of row {{row}} is {{gap}} nats off that of forward"
    require_equal(got.double(), expected.double(), 200 * torch.finfo(narrow).eps, message)
    return f"{len(subject.probes)} values of y, and the rows' own in {narrow}".replace("torch.", "")


@label_check
@torch.no_grad()
def check_total_probability(subject: LabelSubject) -> str:
    """The probabilities of all labels of a row add up to 1; of all labels of its first elements, where each has one."""
    if subject.alphabet is None:
        raise DoesNotApply("the labels cannot be listed")
    values = subject.alphabet.to(subject.y)
    length, listed = 1, values.view(len(values), 1) if subject.labels_elements else values
    context = subject.context
    if subject.labels_elements:
        work = OPERATIONS / (2 * sum(parameter.numel() for parameter in subject.model.parameters()) + 1)
        most = max(len(values), min(_MOST_LISTED, int(work)))
        longest = int(min(subject.time, subject.time if subject.lengths is None else subject.lengths.max()))
        while length < longest and len(values) ** (length + 1) * (length + 1) <= most:
            length += 1
        listed = values[torch.tensor(list(product(range(len(values)), repeat=length)), device=subject.device)]
        context = subject.over_time(lambda leaf: leaf[:, :length])
    rows = subject.rows[:2] if subject.labels_elements else subject.rows
    for label, model, _ in weighted_models(subject):
        for row in rows.split(1):
            one = expand(select(context, row), len(listed))
            total = float(model.log_prob(listed, one).exp().sum())
            if not abs(total - 1) <= _SUM:
                what = f"all {len(listed)} labels of {'its first elements' if subject.labels_elements else 'it'}"
                raise Violation(f"{label}row {int(row)}: the probabilities of {what} add up to {total:.6g}, not 1")
    return f"all {len(listed)} labels" + (f" of the first {length} elements" if subject.labels_elements else "")


@label_check
def check_gradients_reach_parameters(subject: LabelSubject) -> str:
    """`log_prob` gives each parameter a gradient that is not all zero, at some labels and weights, and finite."""

    def attempts() -> Iterator[Attempt]:
        for draw in (None, fresh, biased, jittered, remembering, uneven):
            model = subject.model if draw is None else refilled(subject.model, subject, draw)
            found = [model.log_prob(y, subject.context, subject.lengths) for y in subject.probes]
            # Labels that cannot be, as by the constraints of tags, are left out.
            yield model, [("log_prob", total[total.isfinite()].sum()) for total in found], draw is None

    return require_gradients(subject.model, attempts())


@label_check
@torch.no_grad()
def check_save_load(subject: LabelSubject) -> str:
    """The `state_dict`, through a file's bytes into a model with other weights, gives the same `log_prob` exactly."""
    return save_and_load(
        subject, subject.model, lambda model: {"log_prob": subject.row_numbers(subject.rows, model=model)}
    )


@label_check
@torch.no_grad()
def check_reproducible(subject: LabelSubject) -> str:
    """In evaluation mode `forward` and `log_prob` repeat exactly under any global random state, and change nothing."""
    before, answers = snapshot(subject.model), []
    for attempt in (0, 1):
        reseed(1000 + attempt)
        forward = _of_forward(subject.distribution(subject.context, subject.lengths), subject.probes)
        answers.append({"forward": forward, "log_prob": subject.row_numbers(subject.rows)})
    for name, first in answers[0].items():
        if not torch.equal(first.nan_to_num(1.0), answers[1][name].nan_to_num(1.0)):
            raise Violation(f"{name} gives two answers for the same input in evaluation mode")
    if paths := changed(before, snapshot(subject.model)):
        raise Violation(f"an answer changed the module: {', '.join(paths[:3])}")
    return "forward and log_prob repeated, under different global random states"


def _of_forward(answer: Distribution, probes: list[Tensor]) -> Tensor:
    """(B, 1, P) log-probabilities of the probes under a distribution whose batch may have more axes than rows."""
    terms = [answer.log_prob(probe) for probe in probes]
    return torch.stack([term.view(len(term), -1).sum(1) for term in terms], -1).unsqueeze(1)


def _in_type(leaf: Tensor, dtype: torch.dtype) -> Tensor:
    return leaf.to(dtype) if leaf.is_floating_point() else leaf


_SHARP = 1e-6  # allowed of a model with large weights, which amplifies rounding


@label_check
@torch.no_grad()
def check_batch_independence(subject: LabelSubject) -> str:
    """`log_prob` of a row is the same alone, among other rows, in another order, and in a larger batch."""
    rows, last = subject.rows, subject.rows[-1:]
    among = {
        "alone": (last, 0),
        "among other rows": (torch.cat([rows[:-1].roll(1), last]), len(rows) - 1),
        "among copies of the first row": (torch.cat([rows[:1].expand(len(rows) - 1), last]), len(rows) - 1),
        "when the rows are reversed": (rows.flip(0), 0),
        "in a larger batch": (rows.repeat(3), 3 * len(rows) - 1),
    }
    for label, model, tolerance in weighted_models(subject):
        own = subject.row_numbers(rows, model=model)[-1:]
        for where, (chosen, index) in among.items():
            numbers = subject.row_numbers(chosen, model=model)[index : index + 1]
            require_equal(numbers, own, tolerance, f"{label}log_prob of a row differs by {{gap}} nats {where}")
    return f"a row {', '.join(among)}"


@label_check
def check_padding_invariance(subject: LabelSubject) -> str:
    """With lengths, `log_prob` of a row is that of the row cut at its end, whatever the padding holds and however long.

    Padding of inputs holds other elements, and NaN where they are real numbers; padding of labels holds numbers that
    are no labels. An empty row of labels has log-probability 0. Gradients stay finite.
    """
    if subject.real is None:
        raise DoesNotApply("nothing says how long rows are: neither lengths nor context['lengths']")
    shares = torch.tensor([0.0, 1.0, 0.5, 0.25], device=subject.device)[: len(subject.rows)]
    lengths = (subject.real * shares).ceil().long()
    with torch.no_grad():
        for label, model, tolerance in weighted_models(subject):
            numbers = subject.numbers(*subject.shortened(subject.context, lengths), model=model)
            if numbers.isnan().any():
                raise Violation(f"{label}log_prob of a padded row is not a number")
            if subject.labels_elements and numbers[lengths == 0].any():
                raise Violation(f"{label}log_prob of an empty row is {float(numbers[0, 0, 0]):.3g}, not 0")
            for how, context, probes in _paddings(subject, lengths):
                again = subject.numbers(*subject.shortened(context, lengths), probes=probes, model=model)
                message = f"{label}log_prob of row {{row}} differs by {{gap}} nats with {how} as padding"
                require_equal(again, numbers, tolerance, message)
            for row in subject.rows[lengths > 0].split(1):
                alone = _alone(subject, model, row, lengths[row])
                message = f"{label}log_prob of a padded row differs by {{gap}} nats from that of the row cut at its end"
                require_equal(alone, numbers[row], tolerance, message)
    _require_finite_gradients(subject, lengths)
    return f"rows of {', '.join(map(str, lengths.tolist()))} elements in {subject.time}, and further padding"


def weighted_models(subject: LabelSubject) -> Iterator[tuple[str, LikelihoodModel, float]]:
    """The model and one with large weights, each with its name and how far rounding may move its answers."""
    moved = independent_copy(subject.model)
    with torch.no_grad():
        for parameter in moved.parameters():
            if parameter.is_floating_point():
                parameter.mul_(1 + 4 * torch.finfo(torch.float64).eps * subject.normal(parameter.shape))
        effect = distance(subject.row_numbers(subject.rows), subject.row_numbers(subject.rows, model=moved))
    yield "", subject.model, TOLERANCE + 100 * float(effect.max())
    large = refilled(subject.model, subject, sharp)
    if not subject.row_numbers(subject.rows, model=large).isnan().any():
        yield "with sharp random weights, ", large, _SHARP


def _alone(subject: LabelSubject, model: LikelihoodModel, row: Tensor, lengths: Tensor) -> Tensor:
    """The numbers of one row, without padding."""
    length = int(lengths)
    cut = select(subject.over_time(lambda leaf: leaf[:, :length]), row)
    given = (cut, None) if subject.labels_elements else subject.shortened(cut, lengths)
    return subject.numbers(*given, probes=subject.cut(row, length), model=model)


def _paddings(subject: LabelSubject, lengths: Tensor) -> Iterator[tuple[str, Context, list[Tensor]]]:
    """Inputs and labels that differ past the rows' ends."""
    real = length_mask(lengths, subject.time)

    def refilled_with(leaf: Tensor, padding: Tensor) -> Tensor:
        return torch.where(real.view(real.shape + (1,) * (leaf.dim() - 2)), leaf, padding)

    others = subject.over_time(lambda leaf: refilled_with(leaf, leaf.roll(1, 0)))
    yield "other elements", others, subject.probes
    if any(leaf.is_floating_point() and leaf.dim() > 1 for leaf in leaves(subject.context)):
        nan = subject.over_time(
            lambda leaf: refilled_with(leaf, torch.full_like(leaf, torch.nan)) if leaf.is_floating_point() else leaf
        )
        yield "NaN", nan, subject.probes
    longer = subject.over_time(lambda leaf: torch.cat([leaf, leaf.flip(1)[:, :3]], 1))
    if not subject.labels_elements:
        yield "more elements", longer, subject.probes
        return
    yield "more elements", longer, [torch.cat([probe, probe.flip(1)[:, :3]], 1) for probe in subject.probes]
    for number in (-1, 2**30):
        labels = [refilled_with(probe, torch.full_like(probe, number)) for probe in subject.probes]
        yield f"the label {number}", subject.context, labels


def _require_finite_gradients(subject: LabelSubject, lengths: Tensor) -> None:
    parameters = [parameter for parameter in subject.model.parameters() if parameter.requires_grad]
    for what, context, (own, *_) in _paddings(subject, lengths):
        total = subject.model.log_prob(own, *subject.shortened(context, lengths))
        total = total[total.isfinite()].sum()
        if not total.requires_grad:
            return  # gradients_reach_parameters says so
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        if any(gradient is not None and not gradient.isfinite().all() for gradient in gradients):
            raise Violation(f"gradients of log_prob are not finite with {what} as padding")


LABEL_CHECKS = (
    check_log_prob_is_that_of_forward,
    check_total_probability,
    check_batch_independence,
    check_padding_invariance,
    check_gradients_reach_parameters,
    check_save_load,
    check_reproducible,
)
