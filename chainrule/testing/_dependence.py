"""Checks of what conditionals depend on: on nothing later, and on every earlier element and the context."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel, Context
from chainrule.state import flatten, leaves, map_state, unflatten
from chainrule.testing._agreement import distance, evenly, require_equal, require_sum, values, weighted
from chainrule.testing._contract_check import contract_check
from chainrule.testing._isolation import as_called, reseed
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import Batch, DoesNotApply, Violation

# Without a leak, two runs of equal shape agree exactly, unless a transform such as an FFT spreads rounding over time.
ROUNDING = 1e-10
DERIVATIVE = 1e-12  # derivatives subtract no large numbers, so their tolerance is smaller


@contract_check(SequenceSubject)
def check_causality(subject: SequenceSubject) -> str:
    """Check that p(x_t | x_<t, c) does not change with x_t, x_t+1, ..., nor with the number of elements that follow.

    The check replaces elements from a position on (all of them, a half, or one) and requires that the conditionals up
    to that position stay: at every position, for several x, with and without `lengths`, at the given weights and at
    random ones. Replacement detects leaks without gradients (an argmax); random weights reveal leaks that are inactive
    at the given weights (a rectifier that does not fire). For continuous x the check also computes gradients.
    """
    x = subject.x
    _swing(subject)
    draws = list(weighted(subject, "fresh", "uneven", "biased"))
    for attempt, (weights, model) in enumerate(draws):
        _replace(subject, model, weights, x, with_lengths=False)
        if attempt < 2:
            _replace(subject, model, weights, x, with_lengths=True)
            _differentiate(subject, model, weights, x)
        x = subject.altered(x)
    return f"elements replaced at {subject.time} positions, {len(draws)} draws of the weights"


@torch.no_grad()
def _replace(
    subject: SequenceSubject, model: AutoregressiveModel, weights: str, x: Tensor, *, with_lengths: bool
) -> None:
    count = max(min(subject.elements // subject.time, 3 * subject.time) // (2 if weights else 1), 2)
    rows = torch.arange(count, device=subject.device) % len(x)
    spread = min(subject.time, count)
    cuts = (
        torch.linspace(0, subject.time - 1, spread, dtype=torch.float64, device="cpu")
        .round()
        .long()[torch.arange(count, device="cpu") % spread]
    )
    if weights and spread < subject.time:  # even positions at the given weights, random ones at other weights
        cuts = subject.integers(subject.time, (count,)).cpu()
    cuts = cuts.to(subject.device)
    other = _replaced(subject, x[rows], cuts)
    lengths = None
    if with_lengths:
        lengths = cuts + 1 + (subject.uniform(cuts.shape) * (subject.time - cuts)).long()
        if not subject.takes(x, torch.full_like(subject.rows, subject.time), model):
            return  # a model that cannot take lengths fails padding_invariance
    full = torch.full_like(subject.rows, subject.time)
    ends = None if lengths is None else torch.cat([full, lengths])
    numbers = subject.numbers(subject.of(torch.cat([x, other]), torch.cat([subject.rows, rows]), ends), model)
    gaps = distance(numbers[: len(x)][rows], numbers[len(x) :])
    gaps.masked_fill_(torch.arange(subject.time, device=cuts.device) > cuts.unsqueeze(1), 0)
    # Rows of one batch are cut at different positions, so a difference may come from another row's past. Only a
    # difference that remains when all rows are cut at the same position comes from the future.
    for suspect in (gaps > 1e-7).any(1).nonzero().flatten()[:16].tolist():
        same = torch.full_like(subject.rows, suspect)
        before = subject.of(x[rows[same]], rows[same], None if lengths is None else full)
        after = subject.of(other[same], rows[same], None if lengths is None else lengths[same])
        pair = subject.numbers(before, model), subject.numbers(after, model)
        require_past(*pair, int(cuts[suspect]), ROUNDING, weights, "" if lengths is None else " or lengths")


@torch.no_grad()
def _swing(subject: SequenceSubject) -> None:
    """Move every element of the batch from one end of the support to the other, from a position on."""
    # A function of the whole batch, such as its maximum, hardly changes with a single row.
    time = subject.time
    for cut in sorted({0, 1, time // 2, time - 1} & set(range(time))):
        before, after = (subject.numbers(subject.of(x)) for x in swung(subject.x, cut, subject.extremes))
        require_past(before, after, cut, ROUNDING, "")


def swung(x: Tensor, cut: int, extremes: tuple[Tensor, Tensor]) -> list[Tensor]:
    """Return x twice, with every element from a position on at one end of the support and at the other."""
    return [torch.cat([x[:, :cut], end.to(x).expand_as(x[:, cut:])], 1) for end in extremes]


def require_past(before: Tensor, after: Tensor, cut: int, tolerance: float, label: str, replaced: str = "") -> None:
    """Raise `Violation` if conditionals (B, T, K) up to a cut moved when elements from there on were replaced."""
    gap = distance(before, after)[:, : cut + 1]
    if (gap > tolerance).any():
        t = int((gap > tolerance).any(0).nonzero()[0])
        what = f"elements from {cut} on{replaced}"
        raise Violation(
            f"{label}p(x_{t} | x_<{t}) moved by {float(gap[:, t].max()):.3g} nats when only {what} were replaced"
        )


def _replaced(subject: SequenceSubject, x: Tensor, cuts: Tensor) -> Tensor:
    """Replace elements from each row's cut on: in turn all of them, about a half, or a single one."""
    time = torch.arange(subject.time, device=subject.device)
    later = time >= cuts.unsqueeze(1)
    half = later & (subject.uniform(later.shape) < 0.5) | (time == cuts.unsqueeze(1))
    single = time == (cuts + (subject.uniform(cuts.shape) * (subject.time - cuts)).long()).unsqueeze(1)
    kind = (torch.arange(len(x), device=subject.device) // min(len(x), subject.time) + cuts % 3) % 3
    where = torch.stack([later, half, single])[kind, torch.arange(len(x), device=subject.device)]
    return torch.where(where.view(where.shape + (1,) * (x.dim() - 2)), subject.altered(x), x)


def _differentiate(subject: SequenceSubject, model: AutoregressiveModel, weights: str, x: Tensor) -> None:
    if not x.is_floating_point():
        return
    x = x.clone().requires_grad_()
    numbers = subject.numbers(subject.of(x), model)
    if not numbers.requires_grad:
        return
    numbers = torch.where(numbers.isfinite(), numbers, 0)
    times = evenly(subject.time, min(subject.time, 8)).tolist()
    for t in sorted(set(times)):
        direction = subject.normal(numbers[:, t].shape)
        total = (numbers[:, t] * direction).sum()
        (gradient,) = torch.autograd.grad(total, x, retain_graph=True, allow_unused=True, materialize_grads=True)
        sizes = gradient.abs().view(*x.shape[:2], -1).amax((0, 2))
        leak = (sizes[t:] > DERIVATIVE * (1 + sizes.max())).nonzero().flatten()
        if len(leak):
            s = t + int(leak[0])
            raise Violation(
                f"{weights}p(x_{t} | x_<{t}) has a gradient of size {float(sizes[s]):.3g} with respect to x_{s}"
            )


@dataclass(frozen=True)
class Setting:
    """A mode of calling a model: a copy in its dtype (`own_type`) or float64, with or without autograd."""

    model: AutoregressiveModel
    batch: Batch
    own_type: bool
    gradients: bool

    def __str__(self) -> str:
        mode, switch = ("training" if self.model.training else "evaluation"), ("on" if self.gradients else "off")
        number_type = "its own number type" if self.own_type else "float64"
        return f"in {mode} mode, gradients {switch}, {number_type}, {len(self.batch.x)} rows: "

    def of(self, x: Tensor, ask: Callable[[Batch], Tensor]) -> Tensor:
        """Evaluate `ask` on the batch with other x, always from the same global random state."""
        reseed(4000)
        with as_called() if self.own_type else nullcontext(), torch.set_grad_enabled(self.gradients):
            return ask(self.batch._replace(x=x)).detach().double()  # inside: conditionals may compute lazily


@contract_check(SequenceSubject)
def check_conditions(subject: SequenceSubject) -> str:
    """Check causality and `log_prob` as the model is used: in training, in its own dtype, on the whole batch.

    The other checks use a few rows in float64 and evaluation mode, mostly without gradients. This check replaces
    elements from a position on, and compares `log_prob` with the sum of the conditionals, in training mode (dropout set
    to 0) and evaluation mode, with and without gradients, in the model's dtype on all rows, and in float64. Rows of the
    whole batch must not influence each other, as batch statistics would.
    """
    settings = list(_settings(subject))
    for setting in settings:
        _examine(subject, setting)
    ways = "training or evaluation, gradients on or off, own type or float64"
    return f"{len(settings)} ways to call it: {ways}, {len(subject.full_batch.x)} rows"


def _settings(subject: SequenceSubject) -> Iterator[Setting]:
    for own_type, training in product((True, False), (True, False)):
        model = subject.copy(own_type=own_type).train(training)
        for part in model.modules() if training else ():
            if isinstance(part, nn.modules.dropout._DropoutNd):
                part.p = 0.0
            elif isinstance(getattr(part, "dropout", None), float):
                part.dropout = 0.0  # type: ignore[assignment]  # the line above checked that it is a float
        for gradients in (True, False):
            if own_type or training or gradients:  # the other checks cover the remaining mode
                yield Setting(model, subject.full_batch if own_type else subject.batch(), own_type, gradients)


def _examine(subject: SequenceSubject, setting: Setting) -> None:
    model, x = setting.model, setting.batch.x
    probes = subject.probes.to(x)  # computed here, in float64, outside the setting
    allowed = max(1e-9, min(200 * torch.finfo(subject.own_type).eps, 0.05)) if setting.own_type else 1e-9

    def numbers(x: Tensor) -> Tensor:
        return setting.of(x, lambda batch: values(model(*batch), probes, 2))

    before, time = numbers(x), x.shape[1]
    other = subject.altered(x).to(x)
    if len(x) > 1:  # first: rows that influence each other would also fail the causality test below
        alone = numbers(torch.cat([x[:1], other[1:]]))[:1]
        message = f"{setting}the conditionals of the first row moved by {{gap}} nats when the other rows were replaced"
        require_equal(alone, before[:1], allowed, message)
    for cut in sorted({0, time // 2, time - 1}):
        after = numbers(torch.cat([x[:, :cut], other[:, cut:]], 1))
        require_past(before, after, cut, allowed, str(setting))
    # A function of the whole batch, such as its maximum, changes only if all rows do.
    low, high = swung(x, time // 2, subject.extremes)
    require_past(numbers(low), numbers(high), time // 2, allowed, str(setting))
    expected = setting.of(x, lambda batch: model(*batch).log_prob(batch.x).double().flatten(1).sum(1))
    require_sum(setting.of(x, lambda batch: model.log_prob(*batch)), expected, 10 * allowed, str(setting))


LONGEST = 128  # elements; at longer distances the influence in a healthy recurrence may be smaller than rounding
WHOLE = -1  # index that stands for the whole context
DRAWS = ("isometric", "fresh", "biased", "sharp", "remembering", "steep", "uneven", "jittered")


@contract_check(SequenceSubject)
def check_full_context(subject: SequenceSubject) -> str:
    """Check that x_s can influence p(x_t | x_<t, c) for every permitted s, and the context every conditional.

    Every s < t is permitted, or exactly the pairs that `visible_past` declares. The check replaces one element at a
    time and compares the later conditionals to the last bit, in float64. Influence at any draw of the weights counts,
    since weights may hide it. If it fades below rounding, as over a long saturated recurrence, the check follows the
    gradient of the state.
    """
    x = subject.beginning(LONGEST)
    if x.shape[1] == 1 and subject.context is None:
        raise DoesNotApply("x has a single element and there is no context")
    if subject.support is not None and len(subject.support) == 1:
        raise DoesNotApply("the support is a single value, which always has probability 1")
    pairs, blind = _compare_elements(subject, x)
    unseen = f"; {blind} more are a blind spot or limited context, as visible_past declares" if blind else ""
    context = ""
    if subject.context is not None:
        _compare_contexts(subject, x)
        context = ", and so has the context on every conditional"
    return f"each of {pairs} pairs s < t (T={x.shape[1]}) has an influence{context}{unseen}"


def _compare_elements(subject: SequenceSubject, x: Tensor) -> tuple[int, int]:
    """Count the pairs s < t with an influence, and the pairs that are declared to have none."""
    time = x.shape[1]
    sources = evenly(time, min(time, LONGEST))
    watched = torch.zeros(time, time, dtype=torch.bool, device="cpu")
    watched[:, sources] = True
    declared = _declared(subject.model, time) & watched
    seen = torch.zeros_like(declared)
    for attempt, (_, model) in enumerate(weighted(subject, *DRAWS)):
        wanted = declared & ~seen if attempt > 1 else watched  # search for undeclared influence twice
        seen |= influence(subject, model, x, wanted.any(0).nonzero().flatten())
        if attempt and not (declared & ~seen).any():
            break
        x = subject.altered(x)
    if (declared & ~seen).any():
        seen |= _influence_through_state(subject, x, declared & ~seen)
    _judge(declared, seen)
    return int(declared.sum()), int((watched & ~declared).tril(-1).sum())


@torch.no_grad()
def _compare_contexts(subject: SequenceSubject, x: Tensor) -> None:
    """Require that every conditional changes with the context, and that every part of the context changes one."""
    influential: dict[int, bool] = {}
    seen, replaced = torch.zeros(x.shape[1], dtype=torch.bool, device="cpu"), False
    for _, model in weighted(subject, *DRAWS):
        base = subject.numbers(subject.of(x), model)
        for part, context in _other_contexts(subject):
            whole = part == WHOLE or not isinstance(subject.context, Tensor)
            if influential.setdefault(part, False) and (seen.all() or not whole):
                continue
            try:
                moved = (distance(base, subject.values(model(x, context), 2)) > 0).any(0).cpu()
            except (IndexError, RuntimeError, ValueError):
                continue  # for example, an invalid class number or length
            influential[part] |= bool(moved.any())
            if whole:
                seen, replaced = seen | moved, True
        if seen.all() and all(influential.values()):
            return
        x = subject.altered(x)
    if replaced and not seen.all():
        t = int((~seen).nonzero()[0])
        raise Violation(f"the context never influences p(x_{t} | x_<{t}, c)")
    if replaced:
        silent = min(part for part, moves in influential.items() if not moves)
        raise Violation(f"entry {silent} of the context never influences any conditional")


def _other_contexts(subject: SequenceSubject) -> Iterator[tuple[int, Context]]:
    """Yield the context with a part replaced: all of a tensor, and some entries of its rows, or each leaf of a tree."""
    context = subject.context
    if not isinstance(context, Tensor):
        tensors, skeleton = flatten(context)
        for index, (name, leaf) in enumerate(tensors.items()):
            yield index, unflatten({**tensors, name: _other(subject, leaf)}, skeleton)
        return
    yield WHOLE, _other(subject, context)
    if context.dim() > 1 and context.shape[1] > 1:
        for entry in sorted(set(evenly(context.shape[1], 16).tolist())):
            mixed = context.clone()
            mixed[:, entry] = _other(subject, context)[:, entry]
            yield entry, mixed


def _other(subject: SequenceSubject, context: Tensor) -> Tensor:
    if context.is_floating_point():
        return context + subject.normal(context.shape) * (context.std(correction=0) + 0.1)
    if context.dtype == torch.bool:
        return ~context
    top = max(int(context.max()), 1)  # assume that all integers up to the largest are valid
    return (context + 1 + subject.integers(top, context.shape)) % (top + 1)


def _declared(model: AutoregressiveModel, time: int) -> Tensor:
    declared = model.visible_past(time).cpu()
    if declared.dtype != torch.bool or declared.shape != (time, time) or declared.triu().any():
        raise Violation(
            f"visible_past({time}): expected ({time}, {time}) booleans, true only below the diagonal, "
            f"got shape {tuple(declared.shape)} of {declared.dtype}"
        )
    return declared


def _judge(declared: Tensor, seen: Tensor) -> None:
    missing = (declared & ~seen).nonzero()
    if len(missing):
        t, s = missing[(missing[:, 0] - missing[:, 1]).argmin()].tolist()
        raise Violation(
            f"x_{s} never influences p(x_{t} | x_<{t}), nor in {len(missing) - 1} more of {int(declared.sum())} pairs; "
            "a model with a limited context declares it in visible_past"
        )
    excess = (seen & ~declared).tril(-1).nonzero()
    if len(excess):
        t, s = excess[0].tolist()
        raise Violation(f"x_{s} influences p(x_{t} | x_<{t}), though visible_past declares that it does not")


@torch.no_grad()
def influence(
    subject: SequenceSubject, model: AutoregressiveModel, x: Tensor, sources: Tensor, tolerance: float = 0.0
) -> Tensor:
    """Return (T, T) booleans, true where replacing x_s, s in `sources`, moves p(x_t | x_<t) by more than tolerance."""
    time = x.shape[1]
    moved = torch.zeros(time, time, dtype=torch.bool, device="cpu")
    for part in sources.split(max(subject.elements // time, 1)) if len(sources) else ():
        rows = part.to(subject.device) % len(x)
        base = x[rows]
        replaced = base.clone()
        index = torch.arange(len(part), device=subject.device)
        replaced[index, part.to(subject.device)] = subject.altered(base)[index, part.to(subject.device)]
        pair = (subject.numbers(subject.of(x_s, rows), model) for x_s in (base, replaced))
        moved[:, part] = (distance(*pair) > tolerance).cpu().t()
    return moved


def _influence_through_state(subject: SequenceSubject, x: Tensor, wanted: Tensor) -> Tensor:
    """Return (T, T) booleans, true where x_s changes the state and p(x_t | x_<t) has a gradient in the state."""
    # A product of small derivatives stays exact where a finite difference would be lost to rounding.
    seen = torch.zeros_like(wanted)
    for _, model in weighted(subject, "fresh", "biased"):
        with torch.no_grad():
            batch = subject.of(x)
            alike = not (distance(subject.step_numbers(batch, model), subject.numbers(batch, model)) > 1e-6).any()
        if alike:
            for s in (wanted & ~seen).any(0).nonzero().flatten().tolist():
                seen[:, s] |= _from_state(subject, model, x, s)
        if not (wanted & ~seen).any():
            break
    return seen


def _from_state(subject: SequenceSubject, model: AutoregressiveModel, x: Tensor, s: int) -> Tensor:
    time = x.shape[1]
    seen = torch.zeros(time, dtype=torch.bool, device="cpu")
    with torch.no_grad():
        *_, taken = subject.stepped(subject.of(x[:, : s + 1]), model)
        other, state = (model.step(x_s, taken.following)[1] for x_s in (subject.altered(x)[:, s], x[:, s]))
    before, after = ([leaf for leaf in leaves(tree) if leaf.is_floating_point()] for tree in (state, other))
    inputs = [leaf.clone().requires_grad_() for leaf in before]
    if not inputs:  # a state of symbols has no gradient
        return seen
    remaining = iter(inputs)
    state = map_state(lambda leaf: next(remaining) if leaf.is_floating_point() else leaf, state)
    for t in range(s + 2, time):
        conditional, state = model.step(x[:, t - 1], state)
        numbers = subject.values(conditional, 1)
        if not numbers.requires_grad:
            continue
        total = (torch.where(numbers.isfinite(), numbers, 0) * subject.normal(numbers.shape)).sum()
        gradients = torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True)
        seen[t] = any(
            gradient is not None and bool(((gradient != 0) & (left != right)).any())
            for gradient, left, right in zip(gradients, before, after, strict=True)
        )
    return seen
