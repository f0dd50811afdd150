"""Check any module that maps symbols to logits."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from chainrule._base import TrainableModel
from chainrule._modes import device_of, evaluating
from chainrule.models._logits_model import LogitsModel, from_logits
from chainrule.models._module_call import CacheStep
from chainrule.testing._agreement import require_equal, rounding
from chainrule.testing._causality import ROUNDING
from chainrule.testing._contract import check_model
from chainrule.testing._contract_check import contract_check
from chainrule.testing._full_context import DRAWS, LONGEST, check_full_context, influence
from chainrule.testing._isolation import isolated
from chainrule.testing._report import Report, Result
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._subject import DoesNotApply
from chainrule.testing._values import distance
from chainrule.testing._weights import weighted

SHORT = 16  # symbols that tell which of them the logits predict

# What a broken rule means for a module that was written elsewhere.
FAULTS = {
    "causality": "leak: the future influences the past",
    "full_context": "part of the past is never read",
    "batch_independence": "rows of a batch influence each other",
    "padding_invariance": "padding influences the symbols before it",
    "left_padding": "padding influences the symbols after it",
    "save_load": "weights are missing from the state_dict",
    "gradients_reach_parameters": "weights that training never moves",
    "reproducible": "random or stateful in evaluation mode",
}


def check(
    module: nn.Module,
    example: Tensor,
    *,
    start: int | None = None,
    shifted: bool | None = None,
    cache: bool = True,
    step: CacheStep | None = None,
    seed: int = 0,
) -> Report:
    """Test any module that maps symbols (B, T) to logits (B, T, V): a GPT, an LSTM, a Hugging Face causal LM.

    The module is adapted by `from_logits`, and `check_model` tests the result. The report names, among
    others,

    - a leak: logits that depend on the symbols that they predict, or on later ones (`causality`);
    - a wrong shift: logits that predict another position than was said (`shift`);
    - rows that influence each other, as under batch normalisation (`batch_independence`, or `conditions` where it
      happens in training mode alone);
    - padding that influences anything (`padding_invariance`; `left_padding` where `forward` takes a mask of it);
    - a cache that disagrees with the full pass (`step_equals_forward`; `chunk_invariance` where it does so only when
      several symbols are read at once).

    A module with a limited context passes, and the report says how many symbols it sees. An `AutoregressiveModel` is
    tested by `check_model`, one of `from_logits` as here. The module, its gradients and the global random state are
    left as they are.

    Args:
        module: see `from_logits`, also for how a cache is found.
        example: (B, T) integers that the module is meant for; 4 rows of 32 symbols are plenty.
        start: a symbol that begins every sequence; says that logits[:, t] predict x[:, t + 1].
        shifted: whether logits[:, t] predict x[:, t + 1], or x[:, t]. Found by replacing symbols where it is not given.
        cache: False ignores the module's cache.
        step: reads one symbol more from a cache, see `from_logits`.
        seed: of every random choice of the checks.

    Returns:
        A report with `.ok`, `.failures`, and a row for each rule when it is printed.

    Raises:
        ValueError: the example is no batch of symbols, or the module maps it to no logits.

    >>> _ = torch.manual_seed(0)
    >>> module = nn.Sequential(nn.Embedding(5, 8), nn.Linear(8, 5))  # a bigram model
    >>> report = check(module, torch.tensor([[0, 1, 2, 3, 4, 0], [4, 3, 2, 1, 0, 2]]))
    >>> report.ok
    True
    >>> print("\\n".join(str(report).splitlines()[:3]))
    shift                       pass  logits[:, t] predict x[:, t+1], as found by replacing symbols
    causality                   pass  elements replaced at 6 positions, 4 draws of the weights
    full_context                pass  each conditional sees the last symbol only: ...
    """
    if isinstance(module, TrainableModel):
        if (start, shifted, cache, step) != (None, None, True, None):
            raise ValueError("start, shifted, cache, step: expected none of them for a model that keeps the contract")
        if not isinstance(module, LogitsModel):
            return check_model(module, example, seed=seed)
    example, model, declared = _adapted(module, example, start=start, shifted=shifted, cache=cache, step=step)
    as_read = LogitsModel(model.module, replace(model.call, layout=None), start=None, shifted=False, window=None)
    if _is_random(as_read, example, seed):
        shift = Result(
            "shift", True, "does not apply: the same input has other logits (see reproducible)", applies=False
        )
        return Report([shift, *check_model(model, example, seed=seed).results])
    lags = _lags(as_read, example, seed)
    if declared is None and len(lags) and int(lags.min()) > 0:
        model = as_read
    results = []
    for result in check_model(model, example, seed=seed).results:
        if result.name == "full_context" and not result.ok and model.window is None:
            result = _limited(model, example, result, seed)
        results.append(_explained(result, model))
        if result.name == "padding_invariance":
            results.append(_explained(check_left_padding(model, example, seed=seed), model))
    return Report([_shift(lags, declared), *results])


def _adapted(
    module: nn.Module, example: Tensor, *, shifted: bool | None, **options: Any
) -> tuple[Tensor, LogitsModel, bool | None]:
    """The example, the module as a model of sequences, and whether it was said to predict the next symbol."""
    if not isinstance(example, Tensor) or example.dim() != 2 or example.dtype.is_floating_point or example.shape[1] < 2:
        got = f"{tuple(example.shape)} of {example.dtype}" if isinstance(example, Tensor) else type(example).__name__
        raise ValueError(f"example: expected integer symbols of shape (B, T), T at least 2, got {got}")
    example = example.long()
    if isinstance(module, LogitsModel):
        model, shifted = module, module.shifted
    else:
        if shifted is None and (options["start"], options["step"]) != (None, None):
            shifted = True
        model = _fitted(module, example.shape[1], shifted=shifted is not False, **options)
    if not len(example) or int(example.min()) < 0 or int(example.max()) >= model.vocab_size:
        raise ValueError(f"example: expected symbols in [0, {model.vocab_size}), as many as the module has logits")
    try:
        with torch.no_grad(), evaluating(module):
            model(example[:1].to(device_of(model)))
    except Exception as error:
        shape, told = tuple(example[:1].shape), " ".join(str(error).split())
        raise ValueError(f"example: for shape {shape} the module raised {type(error).__name__}: {told}") from error
    return example, model, shifted


def _fitted(module: nn.Module, time: int, **options: Any) -> LogitsModel:
    try:
        return from_logits(module, **options)
    except ValueError as error:
        try:
            return from_logits(module, length=time, **options)  # a module of a fixed number of positions
        except ValueError:
            raise error from error.__cause__


def _is_random(model: LogitsModel, example: Tensor, seed: int) -> bool:
    with isolated(seed, device_of(model)), torch.no_grad():
        subject = SequenceSubject(model, example, None, None, seed)
        first, again = (subject.numbers(subject.batch()) for _ in range(2))
        return bool(distance(first, again).any())


def _lags(model: LogitsModel, example: Tensor, seed: int) -> Tensor:
    """The differences t - s for which logits[:, t] can change with x[:, s].

    One row is changed at one place at a time, so that influence between rows is not taken for influence between places.
    """
    with isolated(seed, device_of(model)), torch.no_grad():
        subject = SequenceSubject(model, example, None, None, seed)
        x = subject.beginning(SHORT)
        places = torch.arange(x.shape[1])
        seen = torch.zeros(len(places), len(places), dtype=torch.bool)
        for _, other in weighted(subject, "fresh", "uneven", "biased"):
            for place in places.split(1):
                seen |= influence(subject, other, x, place, ROUNDING)
            x = subject.altered(x)
        return (places.unsqueeze(1) - places)[seen]


def _shift(lags: Tensor, declared: bool | None) -> Result:
    """Which symbol logits[:, t] predict, judged by the last symbol x[:, t - lag] that they depend on."""
    if not len(lags):
        return Result("shift", True, "does not apply: no symbol of a row alone influences its logits", applies=False)
    least = int(lags.min())
    if least < 0:
        leak = f"a leak hides it: logits[:, t] depend on symbols up to x[:, t+{-least}] (see causality)"
        return Result("shift", True, f"does not apply: {leak}", applies=False)
    if least > 1:
        return Result("shift", False, f"logits[:, t] never see x[:, t-1], but nothing later than x[:, t-{least}]")
    predicted, last = ("x[:, t]", "x[:, t-1]") if least else ("x[:, t+1]", "x[:, t]")
    if declared is None:
        return Result("shift", True, f"logits[:, t] predict {predicted}, as found by replacing symbols")
    if declared is bool(least):
        wrong = f"the last symbol that logits[:, t] see is {last}: they predict {predicted}; pass shifted={not least}"
        return Result("shift", False, wrong)
    return Result("shift", True, f"logits[:, t] predict {predicted}, as declared")


def _limited(model: LogitsModel, example: Tensor, unlimited: Result, seed: int) -> Result:
    """The result of `full_context` where a module sees the last symbols only, at least one: it declares how many."""
    with isolated(seed, device_of(model)), torch.no_grad():
        subject = SequenceSubject(model, example, None, None, seed)
        x = subject.beginning(LONGEST)
        places = torch.arange(x.shape[1])
        seen = torch.stack([influence(subject, other, x, places) for _, other in weighted(subject, *DRAWS)]).any(0)
    window = max((places.unsqueeze(1) - places)[seen].tolist(), default=0)
    limited = LogitsModel(model.module, model.call, start=model.start, shifted=model.shifted, window=window)
    result = check_full_context(limited, example, seed=seed)
    if not result.ok or window < 1:
        return unlimited
    last = "symbol" if window == 1 else f"{window} symbols"
    return replace(result, detail=f"each conditional sees the last {last} only: {result.detail}")


def _explained(result: Result, model: LogitsModel) -> Result:
    cache = model.call.has_cache
    if result.name in ("step_equals_forward", "chunk_invariance"):
        if not result.ok:
            fault = "the cache disagrees with the full pass" if cache else "a beginning has other logits on its own"
            return replace(result, detail=f"{fault}: {result.detail}")
        how = f"through `{model.call.cache_name or 'step'}`" if cache else "no cache, every beginning read on its own"
        return replace(result, detail=f"{how}: {result.detail}") if result.applies else result
    if result.ok or result.name not in FAULTS:
        return result
    return replace(result, detail=f"{FAULTS[result.name]}: {result.detail}")


@contract_check(SequenceSubject)
@torch.no_grad()
def check_left_padding(subject: SequenceSubject) -> str:
    """Padding on the left that a mask marks changes no logits of the symbols after it.

    Of modules that `from_logits` adapted, and whose `forward` takes `attention_mask` or `key_padding_mask`;
    `position_ids` are given where it takes these.
    """
    model = subject.model
    if not isinstance(model, LogitsModel) or not model.call.takes_mask:
        raise DoesNotApply("forward takes no attention_mask or key_padding_mask, and so no padding on the left")
    padding = min(3, subject.time - 1)
    x = subject.x[:, : subject.time - padding]
    padded = torch.cat([subject.x[:, -padding:], x], 1)
    real = torch.arange(subject.time, device=subject.device).expand_as(padded) >= padding
    alone, behind = (model.call.logits(model.module, *rows).log_softmax(-1) for rows in ((x,), (padded, real)))
    message = "logits at {t} of row {row} differ by {gap} nats behind padding"
    require_equal(behind[:, padding:], alone, rounding(subject, subject.of(x)), message)
    return f"{len(x)} rows behind {padding} symbols of padding"
