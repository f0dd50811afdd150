"""The same input gives the same answer, and the same seed the same sample."""

import torch
from torch import Tensor

from chainrule.testing._contract_check import KINDS, contract_check
from chainrule.testing._isolation import reseed
from chainrule.testing._leaves import changed, snapshot
from chainrule.testing._subject import M, Subject, Violation
from chainrule.testing._values import distance


@contract_check(*KINDS)
@torch.no_grad()
def check_reproducible(subject: Subject[M]) -> str:
    """Every answer repeats exactly and changes nothing in the module; a seed fixes samples, and bounds that need draws.

    In evaluation mode nothing is random but what takes a generator, and that draws from the generator alone: the global
    random states neither matter nor move; another seed, or the same generator used on, gives something else.
    """
    batch, before, settings = subject.batch(12), snapshot(subject.model), _settings()
    answers: list[dict[str, Tensor]] = []
    for attempt in (0, 1):
        reseed(1000 + attempt)
        main = {"the answer": subject.numbers(batch), "log_prob": subject.totals(batch)}
        answers.append(main | subject.further(batch))
    for name, numbers in answers[0].items():
        if distance(numbers, answers[1][name]).any():
            raise Violation(f"{name} is another for the same input in evaluation mode")
    drawn = _draw_twice(subject)
    if paths := changed(before, snapshot(subject.model)):
        raise Violation(f"an answer changed the module: {', '.join(paths[:3])}")
    if _settings() != settings:
        raise Violation(
            f"global settings (default dtype, gradient mode, threads) went from {settings} to {_settings()}"
        )
    return f"{', '.join(answers[0])} repeated, under different global random states{drawn}"


def _settings() -> tuple:
    return torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()


def _draw_twice(subject: Subject[M]) -> str:
    generator = subject.generator(1)
    reseed(2000)
    untouched = torch.get_rng_state()
    first = subject.draws(generator)
    if not torch.equal(untouched, torch.get_rng_state()):
        raise Violation(f"{' or '.join(first)} moves the global random state though it was given a generator")
    on = subject.draws(generator)
    reseed(3000)
    again = subject.draws(subject.generator(1))
    for name, draws in first.items():
        if not _same(draws, again[name]):
            raise Violation(f"{name} is another for one seed of its generator: it reads another source of randomness")
    reseed(2000)
    others = {"two seeds": subject.draws(subject.generator(2)), "a generator used twice": on}
    for what, other in others.items():
        if first and all(_same(first[name], other[name]) for name in first) and subject.chance_of(first) <= 1e-12:
            raise Violation(f"{', '.join(first)} are the same for {what}: nothing is drawn from the generator")
    return f"; {', '.join(first)} with 2 seeds" if first else ""


def _same(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and bool(((left == right) | ((left != left) & (right != right))).all())
