"""Every earlier element, and the context, can influence every conditional."""

from collections.abc import Iterator
from itertools import count

import torch
from torch import Tensor

from chainrule.base import AutoregressiveModel, Context
from chainrule.state import State, leaves, map_state
from chainrule.testing.contract_check import contract_check
from chainrule.testing.subject import DoesNotApply, Subject, Violation
from chainrule.testing.values import distance
from chainrule.testing.weights import (
    biased,
    fresh,
    isometric,
    jittered,
    remembering,
    sharp,
    steep,
    uneven,
    weighted,
)

LONGEST = 128  # elements: beyond it the influence of a healthy recurrence may be smaller than rounding
DRAWS = (isometric, fresh, biased, sharp, remembering, steep, uneven, jittered)


@contract_check
def check_full_context(subject: Subject) -> str:
    """Every permitted input can have an influence: x_s on p(x_t | x_<t, c), and the context on every conditional.

    Permitted is every s < t, or what `visible_past` declares, and that exactly. One element is replaced at a time and
    the later conditionals are compared, to the last bit, in float64. Influence at any draw of the weights counts, since
    weights may hide it. Where an influence fades below rounding, as over a long saturated recurrence, it is followed
    through the gradient of the state.
    """
    x = subject.beginning(LONGEST)
    if x.shape[1] == 1 and subject.context is None:
        raise DoesNotApply("x has a single element and there is no context")
    if subject.support is not None and len(subject.support) == 1:
        raise DoesNotApply("the support is a single value, of probability 1 whatever was read")
    pairs, blind = _compare_elements(subject, x)
    unseen = f"; {blind} more are a blind spot or limited context, as visible_past declares" if blind else ""
    context = ""
    if subject.context is not None:
        _compare_contexts(subject, x)
        context = ", and so has the context on every conditional"
    return f"each of {pairs} pairs s < t (T={x.shape[1]}) has an influence{context}{unseen}"


def _compare_elements(subject: Subject, x: Tensor) -> tuple[int, int]:
    """How many pairs s < t were seen to have an influence, and how many are declared to have none."""
    time = x.shape[1]
    sources = torch.linspace(0, time - 1, min(time, LONGEST)).round().long()
    watched = torch.zeros(time, time, dtype=torch.bool)
    watched[:, sources] = True
    declared = _declared(subject.model, time) & watched
    seen = torch.zeros_like(declared)
    for attempt, model in enumerate(_models(subject)):
        wanted = declared & ~seen if attempt > 1 else watched  # what is not declared is looked for twice
        seen |= _influence(subject, model, x, wanted.any(0).nonzero().flatten())
        if attempt and not (declared & ~seen).any():
            break
        x = subject.altered(x)
    if (declared & ~seen).any():
        seen |= _influence_through_state(subject, x, declared & ~seen)
    _judge(declared, seen)
    return int(declared.sum()), int((watched & ~declared).tril(-1).sum())


def _compare_contexts(subject: Subject, x: Tensor) -> None:
    parts = _context_parts(subject)
    seen = torch.zeros(x.shape[1], dtype=torch.bool)
    replaced = False
    for model in _models(subject):
        moved = _context_influence(subject, model, x, parts)
        if moved is not None:
            seen, replaced = seen | moved, True
        if seen.all() and not parts:
            return
        x = subject.altered(x)
    if replaced and not seen.all():
        t = int((~seen).nonzero()[0])
        raise Violation(f"the context never influences p(x_{t} | x_<{t}, c)")
    if replaced and parts:
        raise Violation(f"entry {min(parts)} of the context never influences any conditional")


def _models(subject: Subject) -> Iterator[AutoregressiveModel]:
    yield subject.model
    yield from (model for _, model in weighted(subject, DRAWS))


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
def _influence(subject: Subject, model: AutoregressiveModel, x: Tensor, sources: Tensor) -> Tensor:
    """(T, T) booleans: whether replacing x_s, s in `sources`, moved p(x_t | x_<t)."""
    time = x.shape[1]
    found = torch.zeros(time, time, dtype=torch.bool)
    for part in sources.split(max(subject.elements // time, 1)) if len(sources) else ():
        rows = part.to(subject.device) % len(x)
        base = x[rows]
        replaced = base.clone()
        index = torch.arange(len(part), device=subject.device)
        replaced[index, part.to(subject.device)] = subject.altered(base)[index, part.to(subject.device)]
        moved = distance(subject.forward(base, rows, model=model), subject.forward(replaced, rows, model=model)) > 0
        found[:, part] = moved.cpu().t()
    return found


@torch.no_grad()
def _context_influence(subject: Subject, model: AutoregressiveModel, x: Tensor, parts: set[int]) -> Tensor | None:
    """(T,) booleans: whether another context moved p(x_t | x_<t, c); `None` where the model took no other.

    Entries of the context that moved anything leave `parts`; of a tree, leaves.
    """
    base = subject.forward(x, model=model)
    moved = None
    whole: list[int | None] = [None] if isinstance(subject.context, Tensor) else []
    for entry in [*whole, *sorted(parts)]:
        other = _other_context(subject, entry)
        try:
            numbers = subject.values(model(x, other), 2)
        except (IndexError, RuntimeError, ValueError):
            continue  # a class number that the model does not know, a length that cannot be
        changed = (distance(base, numbers) > 0).any(0).cpu()
        if entry is None or not whole:
            moved = changed if moved is None else moved | changed
        if entry is not None and changed.any():
            parts.discard(entry)
    return moved


def _context_parts(subject: Subject) -> set[int]:
    """Some entries of the first axis of a row's context; of a tree, its leaves."""
    context = subject.context
    if not isinstance(context, Tensor):
        return set(range(len(leaves(context))))
    if context.dim() < 2 or context.shape[1] < 2:
        return set()
    return set(torch.linspace(0, context.shape[1] - 1, 16).round().long().tolist())


def _other_context(subject: Subject, entry: int | None) -> Context:
    """The context with every entry replaced, or one; of a tree, one leaf."""
    if isinstance(subject.context, Tensor):
        return _other_tensor(subject, subject.context, entry)
    place = count()
    return map_state(lambda leaf: _other_tensor(subject, leaf, None) if next(place) == entry else leaf, subject.context)


def _other_tensor(subject: Subject, context: Tensor, entry: int | None) -> Tensor:
    if context.is_floating_point():
        other = context + subject.normal(context.shape) * (context.std(correction=0) + 0.1)
    elif context.dtype == torch.bool:
        other = ~context
    else:
        top = max(int(context.max()), 1)  # the numbers from 0 to the largest seen are taken to be valid
        other = (context + 1 + subject.integers(top, context.shape)) % (top + 1)
    if entry is None:
        return other
    mixed = context.clone()
    mixed[:, entry] = other[:, entry]
    return mixed


def _influence_through_state(subject: Subject, x: Tensor, wanted: Tensor) -> Tensor:
    """(T, T) booleans: x_s changes the state, and the state has a gradient in p(x_t | x_<t).

    A product of small derivatives stays exact where the difference itself is lost when added to 1.
    """
    found = torch.zeros_like(wanted)
    for model in (subject.model, *(copy for _, copy in weighted(subject, (fresh, biased)))):
        if _steps_like_forward(subject, model, x):
            for s in (wanted & ~found).any(0).nonzero().flatten().tolist():
                found[:, s] |= _from_state(subject, model, x, s)
        if not (wanted & ~found).any():
            break
    return found


@torch.no_grad()
def _steps_like_forward(subject: Subject, model: AutoregressiveModel, x: Tensor) -> bool:
    whole = subject.forward(x, model=model)
    state, x_prev = model.initial_state(len(x), subject.context), None
    for t in range(x.shape[1]):
        conditional, state = model.step(x_prev, state)
        if (distance(subject.values(conditional, 1), whole[:, t]) > 1e-6).any():
            return False
        x_prev = x[:, t]
    return True


def _from_state(subject: Subject, model: AutoregressiveModel, x: Tensor, s: int) -> Tensor:
    time = x.shape[1]
    found = torch.zeros(time, dtype=torch.bool)
    with torch.no_grad():
        state, x_prev = model.initial_state(len(x), subject.context), None
        for t in range(s + 1):
            _, state = model.step(x_prev, state)
            x_prev = x[:, t]
        other = model.step(subject.altered(x)[:, s], state)[1]
        state = model.step(x_prev, state)[1]
    before, after = _leaves(state), _leaves(other)
    inputs = [leaf.clone().requires_grad_() for leaf in before]
    remaining = iter(inputs)
    state = map_state(lambda leaf: next(remaining) if leaf.is_floating_point() else leaf, state)
    for t in range(s + 2, time):
        conditional, state = model.step(x[:, t - 1], state)
        numbers = subject.values(conditional, 1)
        if not numbers.requires_grad:
            continue
        total = (torch.where(numbers.isfinite(), numbers, 0) * subject.normal(numbers.shape)).sum()
        gradients = torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True)
        found[t] = any(
            gradient is not None and bool(((gradient != 0) & (left != right)).any())
            for gradient, left, right in zip(gradients, before, after, strict=True)
        )
    return found


def _leaves(state: State) -> list[Tensor]:
    found: list[Tensor] = []

    def keep(leaf: Tensor) -> Tensor:
        found.append(leaf)
        return leaf

    map_state(keep, state)
    return [leaf for leaf in found if leaf.is_floating_point()]
