"""Check that every earlier element, and the context, can influence every conditional."""

from collections.abc import Iterator

import torch
from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule.state import flatten, leaves, map_state, unflatten
from chainrule.testing._agreement import weighted
from chainrule.testing._contract_check import contract_check
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import DoesNotApply, Violation
from chainrule.testing._values import distance

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
    sources = torch.linspace(0, time - 1, min(time, LONGEST), device="cpu").round().long()
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
        for entry in sorted(set(torch.linspace(0, context.shape[1] - 1, 16, device="cpu").round().long().tolist())):
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
