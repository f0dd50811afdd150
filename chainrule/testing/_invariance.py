"""Checks that other rows, padding, repetition and saving change nothing, and that gradients reach every parameter."""

import inspect
from contextlib import suppress
from itertools import islice
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel
from chainrule._checks import length_mask
from chainrule.testing._agreement import distance, require_equal, rounding, trials, weighted
from chainrule.testing._contract_check import KINDS, contract_check
from chainrule.testing._isolation import changed, hidden_tensors, reseed, snapshot, transient_buffers
from chainrule.testing._sequence_subject import LONGEST, SequenceSubject
from chainrule.testing._subject import Batch, DoesNotApply, M, Subject, Violation, filled, in_type, independent_copy


@contract_check(*KINDS)
@torch.no_grad()
def check_batch_independence(subject: Subject[M]) -> str:
    """Check that a row's results are the same alone, among other rows, in another order, and in a larger batch.

    This applies to all methods, and for sequences with `lengths` also if the lengths of the other rows change.
    """
    batch, rows = subject.batch(LONGEST), subject.rows
    first, last = rows[:1], rows[-1:]
    among = {
        where: subject.arranged(batch, order, torch.arange(len(order), device=rows.device) < changed)
        for where, order, changed in (
            ("alone", last, 0),
            ("among other rows", torch.cat([rows[:-1].flip(0), last]), len(rows) - 1),
            ("among copies of the first row", torch.cat([first.expand(len(rows) - 1), last]), 0),
            ("when the rows are reversed", rows.flip(0), 0),
            ("in a larger batch", rows.repeat(3), len(rows)),
        )
    }
    tolerances = []
    for label, model, tolerance in trials(subject, batch):
        row = subject.numbers(batch, model)[-1:]
        tolerances.append(tolerance[-1:])
        for where, arranged in among.items():
            index = 0 if where == "when the rows are reversed" else -1
            numbers = subject.numbers(arranged, model)[index].unsqueeze(0)
            require_equal(numbers, row, tolerances[-1], f"{label}a row differs by {{gap}} nats {where} (t={{t}})")
    expected = subject.further(batch, steps=LONGEST)
    for where in ("alone", "among other rows"):
        for name, numbers in subject.further(among[where], steps=LONGEST).items():
            message = f"{name} of a row differs by {{gap}} nats {where} (t={{t}})"
            allowed = tolerances[0][:, : numbers.shape[1]]  # `further` may step over fewer elements
            require_equal(numbers[-1:], expected[name][-1:], allowed, message)
    if isinstance(subject, SequenceSubject):
        whole = tolerances[0] if batch.x.shape[1] == subject.time else rounding(subject, subject.batch())[-1:]
        _compare_totals_alone(subject, whole.sum())
        _compare_lengths(subject, batch.x, tolerances[0])
    return f"a row alone and in {len(among) - 1} batches"


def _compare_totals_alone(subject: SequenceSubject, allowed: Tensor) -> None:
    batch = subject.batch()
    together = subject.totals(batch)
    alone = torch.cat([subject.totals(batch.rows(row)) for row in subject.rows.split(1)])
    tolerance = allowed * 10 * (1 + together.abs()).view(-1, 1)
    require_equal(alone, together, tolerance, "log_prob of row {row} differs by {gap} nats when it is alone")


def _compare_lengths(subject: SequenceSubject, x: Tensor, allowed: Tensor) -> None:
    time = x.shape[1]
    own = max(time // 2, 1)
    answers = []
    for others in (own, time, 1):
        lengths = torch.full_like(subject.rows, others)
        lengths[-1] = own
        if not subject.takes(x, lengths):
            return  # a model that cannot take lengths fails padding_invariance
        answers.append(subject.numbers(subject.of(x, lengths=lengths))[-1:, :own])
    for numbers in answers[1:]:
        message = "p(x_{t} | x_<{t}) of a row differs by {gap} nats when the lengths of other rows change"
        require_equal(numbers, answers[0], allowed[:, :own], message)


@contract_check(*KINDS)
def check_padding_invariance(subject: Subject[M]) -> str:
    """Check that a padded row with `lengths` gives the same results as the row cut at its end.

    Content and amount of padding must not matter: padding may be other elements and, for `log_prob`, values outside the
    support, invalid labels and NaN. An empty row has log-likelihood 0. Gradients stay finite.
    """
    tried: list[str] = []
    for whole, batch in subject.shortened():
        with torch.no_grad():
            for label, model, allowed in islice(trials(subject, whole), 1 if tried else 2):
                if isinstance(subject, SequenceSubject) and isinstance(model, AutoregressiveModel):
                    _compare_conditionals(subject, model, label, batch, allowed)
                _compare_totals(subject, model, label, batch, 10 * allowed.sum(1, keepdim=True))
        for how, padded in [] if tried else subject.paddings(batch):
            total = subject.totals(padded)
            gradients_of(total[total.isfinite()].sum(), subject.model, f"log_prob, with {how} as padding,")
        tried = [str(length) for length in subject.ends(batch).tolist()]
    return f"rows of {', '.join(tried)} elements, with other and further padding"


def _compare_totals(subject: Subject[M], model: M, label: str, batch: Batch, allowed: Tensor) -> None:
    totals, ends = subject.totals(batch, model), subject.ends(batch)
    empty = totals[ends == 0]
    if empty.isnan().any() or (subject.adds_up and empty.any()):
        raise Violation(f"{label}log_prob of an empty row is {float(empty.flatten()[0]):.3g}, not 0")
    for how, padded in subject.paddings(batch):
        message = f"{label}log_prob of row {{row}} differs by {{gap}} (relative) with {how} as padding"
        require_equal(subject.totals(padded, model), totals, allowed, message)
    for length in set(ends.tolist()) - {0}:
        cut, ending = subject.cut(batch, length), ends == length
        if cut is not None:
            message = (
                f"{label}log_prob of a row of {length} differs by {{gap}} (relative) from log_prob of the row cut there"
            )
            require_equal(subject.totals(cut, model)[ending], totals[ending], allowed[ending], message)


def _compare_conditionals(
    subject: SequenceSubject, model: AutoregressiveModel, label: str, batch: Batch, allowed: Tensor
) -> None:
    x, lengths = batch.x, subject.ends(batch)
    real = length_mask(lengths, x.shape[1])
    numbers = subject.numbers(batch, model)
    longer = torch.cat([x, subject.altered(x)[:, :3]], 1)
    batches = {"with other padding": filled(x, subject.altered(x), real)}
    if subject.shortens and subject.takes(longer, model=model):
        batches["with more padding"] = longer
    for how, padded in batches.items():
        again = subject.numbers(subject.of(padded, lengths=lengths), model)[:, : x.shape[1]]
        message = f"{label}p(x_{{t}} | x_<{{t}}) of row {{row}} differs by {{gap}} nats {how}"
        require_equal(filled(again, numbers, real), numbers, allowed, message)
    for length in set(lengths.tolist()) - {0}:
        cut, ending = subject.numbers(subject.of(x[:, :length]), model), lengths == length
        message = f"{label}p(x_{{t}} | x_<{{t}}) of a padded row of {length} differs by {{gap}} nats from the row alone"
        require_equal(numbers[ending, :length], cut[ending], allowed[ending, :length], message)


@contract_check(*KINDS)
def check_gradients_reach_parameters(subject: Subject[M]) -> str:
    """Check that `log_prob` and `unroll` give every parameter a gradient that is not all zero.

    For a model with a latent code, `training_objective` is checked instead. Gradients at several x and weights are
    combined, since units may saturate at one of them. At the given weights, gradients must be finite; with a latent
    code also at weights of other sizes. Parameters that do not require gradients are ignored.
    """
    wanted = [name for name, weight in subject.model.named_parameters() if weight.requires_grad and weight.numel()]
    if not wanted:
        raise DoesNotApply("no parameter requires a gradient")
    missing: dict[str, set[str]] = {}
    for label, model in weighted(subject, *subject.gradient_draws):
        for way, total in subject.objectives(model):
            gradients = gradients_of(total, model, way if subject.finite_gradients or not label else "")
            absent = missing.setdefault(way, set(wanted))
            absent -= {name for name, gradient in gradients.items() if gradient.any()}
        if not any(missing.values()) and not subject.finite_gradients:
            break
    for way, absent in missing.items():
        if absent:
            names = ", ".join(sorted(absent)[:3]) + (f" and {len(absent) - 3} more" if len(absent) > 3 else "")
            raise Violation(f"{way} gives no gradient to {len(absent)} of {len(wanted)} parameters: {names}")
    return f"all {len(wanted)} parameters, through {' and '.join(missing)}"


def gradients_of(total: Tensor, model: nn.Module, way: str) -> dict[str, Tensor]:
    """Return the gradients of a scalar; `way` names it in the violation if they are not finite, "" permits that."""
    weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not weights or not total.requires_grad:
        return {}
    gradients = torch.autograd.grad(total, list(weights.values()), allow_unused=True)
    present = {name: gradient for name, gradient in zip(weights, gradients, strict=True) if gradient is not None}
    for name, gradient in present.items():
        if way and not gradient.isfinite().all():
            raise Violation(f"the gradient of {way} with respect to {name} is not finite")
    return present


@contract_check(*KINDS)
@torch.no_grad()
def check_reproducible(subject: Subject[M]) -> str:
    """Check that results repeat exactly and leave the module unchanged, and that seeds fix samples and bounds.

    In evaluation mode only methods with a generator are random, and they use no other source: global random states
    neither matter nor change. Another seed, or further use of the same generator, gives other draws.
    """
    batch, before, settings = subject.batch(12), snapshot(subject.model), _settings()
    answers: list[dict[str, Tensor]] = []
    for attempt in (0, 1):
        reseed(1000 + attempt)
        main = {"the answer": subject.numbers(batch), "log_prob": subject.totals(batch)}
        answers.append(main | subject.further(batch))
    for name, numbers in answers[0].items():
        if distance(numbers, answers[1][name]).any():
            raise Violation(f"{name} differs for the same input in evaluation mode")
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
            raise Violation(f"{name} differs for the same generator seed: it reads another source of randomness")
    reseed(2000)
    others = {"two seeds": subject.draws(subject.generator(2)), "a generator used twice": on}
    for label, other in others.items():
        if first and all(_same(first[name], other[name]) for name in first) and subject.chance_of(first) <= 1e-12:
            raise Violation(f"{', '.join(first)} are the same for {label}: nothing is drawn from the generator")
    return f"; {', '.join(first)} with 2 seeds" if first else ""


def _same(left: Tensor, right: Tensor) -> bool:
    return left.shape == right.shape and bool(((left == right) | ((left != left) & (right != right))).all())


@contract_check(*KINDS)
@torch.no_grad()
def check_save_load(subject: Subject[M]) -> str:
    """Check that a `state_dict`, loaded from bytes into a model with other weights, restores the results exactly.

    In the second model the check corrupts values that the `state_dict` does not contain: unregistered tensors of
    modules, and modules hidden in plain lists. It preserves constants that the constructor recreates: values on which
    two calls of the constructor agree or, if it cannot be called again, tensors of 0, 1 and infinity, and ordered
    integers.
    """

    def answers(model: M) -> dict[str, Tensor]:
        return {"": subject.numbers(subject.batch(), model), **subject.further(subject.batch(12), model)}

    model = subject.model
    expected = answers(model)
    saved = _through_bytes(model.state_dict())
    other = independent_copy(model)
    transient = {id(tensor) for tensor in transient_buffers(other).values()}
    for tensor in [*other.parameters(), *other.buffers()]:
        if id(tensor) not in transient:
            _spoil(subject, tensor)
    hidden = _spoil_hidden(subject, model, other)
    with suppress(Exception):  # corrupted weights may be invalid
        answers(other)  # fills caches of the old weights, which must not survive loading
    try:
        result = other.load_state_dict(saved)
    except RuntimeError as error:
        raise Violation(f"load_state_dict: {' '.join(str(error).split())}") from error
    if result.missing_keys or result.unexpected_keys:
        raise Violation(f"load_state_dict: missing {result.missing_keys}, unexpected {result.unexpected_keys}")
    for (name, left), right in zip(expected.items(), answers(other).values(), strict=True):
        if left.shape != right.shape or distance(left, right).any():
            gap = float(distance(left, right).max()) if left.shape == right.shape else float("inf")
            where = f"; not in its state_dict: {', '.join(hidden)}" if hidden else ""
            raise Violation(f"{name or 'an answer'} of the loaded model differs by {gap:.3g} nats{where}")
    return f"{len(saved)} tensors, through safetensors into a model with other weights"


def _through_bytes(state: dict[str, Any]) -> dict[str, Any]:
    tensors = {name: value.detach().clone().contiguous() for name, value in state.items() if isinstance(value, Tensor)}
    others = {name: value for name, value in state.items() if name not in tensors}
    loaded = load(save(tensors))
    return {name: others[name] if name in others else loaded[name].to(state[name].device) for name in state}


def _spoil(subject: Subject[Any], tensor: Tensor) -> None:
    if tensor.is_floating_point():
        tensor.data = tensor + 1 + subject.normal(tensor.shape).to(tensor.dtype)
    elif tensor.dtype == torch.bool:
        tensor.data = ~tensor
    elif tensor.numel() > 1:  # permutations stay permutations, and indices in range
        tensor.data = tensor.flatten().flip(0).roll(1).view(tensor.shape)


def _spoil_hidden(subject: Subject[Any], model: nn.Module, other: nn.Module) -> list[str]:
    """Corrupt the unregistered state, and return its paths."""
    rebuilt, transient, unsaved = _rebuilt(model), transient_buffers(other), _unsaved(other)
    hidden = {
        path: tensor
        for path, tensor in unsaved.items()
        if _is_state(path, tensor, rebuilt, transient=path in transient)
    }
    for tensor in hidden.values():
        spoiled = tensor.detach().clone()
        _spoil(subject, spoiled)
        tensor.detach().copy_(spoiled)
    return list(hidden)


def _unsaved(model: nn.Module) -> dict[str, Tensor]:
    return hidden_tensors(model) | transient_buffers(model)


def _is_state(path: str, tensor: Tensor, rebuilt: list[dict[str, Tensor]], *, transient: bool) -> bool:
    """Return true if a new model with the same arguments would not have this tensor."""
    twins = [tensors.get(path) for tensors in rebuilt]
    if twins and all(twin is not None and twin.shape == tensor.shape for twin in twins):
        first, second = (twin.to(tensor) for twin in twins if twin is not None)
        if not _close(first, second):
            return True
        return not transient and not _close(first, tensor)
    return not transient and not _looks_constant(tensor)


def _close(left: Tensor, right: Tensor) -> bool:
    """Compare up to the precision in which a constant was computed."""
    if not left.is_floating_point():
        return torch.equal(left, right)
    return torch.allclose(left, right, rtol=1e-4, atol=1e-6, equal_nan=True)


def _looks_constant(tensor: Tensor) -> bool:
    if tensor.is_floating_point():
        return bool(((tensor == 0) | (tensor.abs() == 1) | tensor.isinf()).all())
    flat = tensor.flatten().long()
    return tensor.dtype == torch.bool or bool((flat.diff() >= 0).all()) or bool((flat.diff() <= 0).all())


def _rebuilt(model: nn.Module) -> list[dict[str, Tensor]]:
    """Return the unsaved values of two new models with the same arguments; empty if they cannot be built."""
    if not _unsaved(model):
        return []
    arguments = {}
    for name, parameter in inspect.signature(type(model)).parameters.items():
        if isinstance(vars(model).get(name), (bool, int, float, str)):
            arguments[name] = vars(model)[name]
        elif parameter.default is inspect.Parameter.empty and parameter.kind not in (
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        ):
            return []
    shapes = {name: value.shape for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    built = []
    for seed in (1, 2):
        reseed(seed)
        try:
            twin = type(model)(**arguments)
        except Exception:
            return []
        if {name: value.shape for name, value in twin.state_dict().items() if isinstance(value, Tensor)} != shapes:
            return []
        built.append(in_type(_unsaved(twin), torch.float64))
    return built
