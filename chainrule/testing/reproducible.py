"""The same input gives the same answer, and the same seed the same sample."""

import torch
from torch import Tensor

from chainrule.testing.contract_check import contract_check
from chainrule.testing.isolation import reseed
from chainrule.testing.leaves import changed, snapshot
from chainrule.testing.subject import Subject, Violation
from chainrule.testing.values import distance

LONGEST = 12


@contract_check
@torch.no_grad()
def check_reproducible(subject: Subject) -> str:
    """`forward`, `step`, `unroll` and `log_prob` repeat exactly and change nothing in the module; a seed fixes samples.

    In evaluation mode nothing is random but `sample`, and `sample` draws from the given generator alone: the global
    random states neither matter nor move; another seed, or the same generator used on, gives another sample.
    """
    x, model = subject.beginning(LONGEST), subject.model
    before = snapshot(model)
    settings = _settings()
    answers: dict[str, Tensor] = {}
    for attempt in (0, 1):
        reseed(1000 + attempt)
        for name, numbers in _computed(subject, x).items():
            if attempt and not torch.equal(
                distance(answers[name], numbers), torch.zeros(numbers.shape[:-1]).to(numbers)
            ):
                raise Violation(f"{name} gives two answers for the same input in evaluation mode")
            answers[name] = numbers
            _require_unchanged(subject, before, name)
    _sample_twice(subject, x.shape[1])
    _require_unchanged(subject, before, "sample")
    if _settings() != settings:
        raise Violation(
            f"global settings (default dtype, gradient mode, threads) went from {settings} to {_settings()}"
        )
    return "forward, step, unroll and log_prob repeated, under different global random states; samples of 3 seeds"


def _require_unchanged(subject: Subject, before: dict, name: str) -> None:
    paths = changed(before, snapshot(subject.model))
    if paths:
        raise Violation(f"{name} changed the module: {', '.join(paths[:3])}")


def _settings() -> tuple:
    return torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()


def _computed(subject: Subject, x: Tensor) -> dict[str, Tensor]:
    model, context = subject.model, subject.context
    first, state = model.step(None, model.initial_state(len(x), context))
    second, _ = model.step(x[:, 0], state)
    conditionals, _ = model.unroll(x, model.initial_state(len(x), context))
    return {
        "forward": subject.forward(x),
        "step": torch.stack([subject.values(first, 1), subject.values(second, 1)], 1),
        "unroll": subject.values(conditionals, 2),
        "log_prob": model.log_prob(x, context).view(-1, 1, 1),
    }


def _sample_twice(subject: Subject, time: int) -> None:
    rows = subject.rows.repeat(8)
    generator = subject.generator(1)
    reseed(2000)
    untouched = torch.get_rng_state()
    first = _sample(subject, rows, time, generator)
    if not torch.equal(untouched, torch.get_rng_state()):
        raise Violation("sample moves the global random state though it was given a generator")
    on = _sample(subject, rows, time, generator)
    reseed(3000)
    again = _sample(subject, rows, time, subject.generator(1))
    if not _identical(first, again):
        raise Violation("sample gives two answers for one seed of its generator: it reads another source of randomness")
    reseed(2000)
    other = _sample(subject, rows, time, subject.generator(2))
    if not _identical(first, other) and not _identical(first, on):
        return
    if _chance_of_agreement(subject, first, rows) > 1e-12:
        return  # conditionals so sharp that every seed gives the same
    what = "two seeds" if _identical(first, other) else "a generator used twice"
    raise Violation(f"sample gives the same {first.numel()} elements for {what}: it does not draw from its generator")


def _sample(subject: Subject, rows: Tensor, time: int, generator: torch.Generator) -> Tensor:
    return subject.model.sample(len(rows), subject.context_of(rows), length=time, generator=generator)


def _identical(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and bool(((left == right) | ((left != left) & (right != right))).all())


def _chance_of_agreement(subject: Subject, x: Tensor, rows: Tensor) -> float:
    """An upper bound of the probability of drawing x again; 0 for densities."""
    if subject.support is None and x.is_floating_point():
        return 0.0
    whole = x if subject.shortens or x.shape[1] == subject.time else None
    if whole is None:
        return 1.0
    log_prob = subject.conditionals(whole, rows).log_prob(whole)
    return float(log_prob.sum().exp())
