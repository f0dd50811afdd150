"""Checks of the whole contract, for models and for modules that map symbols to logits."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from chainrule._base import Context, TrainableModel
from chainrule.models._logits_model import LogitsModel, from_logits
from chainrule.models._module_call import CacheStep
from chainrule.modes import device_of, evaluating
from chainrule.testing._agreement import distance, require_equal, rounding, weighted
from chainrule.testing._contract_check import KINDS, Check, Report, Result, all_results, contract_check, kind_of
from chainrule.testing._dependence import (
    DRAWS,
    LONGEST,
    ROUNDING,
    check_causality,
    check_conditions,
    check_full_context,
    influence,
)
from chainrule.testing._draws import check_samples_follow_log_prob
from chainrule.testing._invariance import (
    check_batch_independence,
    check_gradients_reach_parameters,
    check_padding_invariance,
    check_reproducible,
    check_save_load,
)
from chainrule.testing._isolation import Widened, isolated
from chainrule.testing._latent_checks import check_bounds, check_decoder, check_kl_divergence, check_posterior
from chainrule.testing._probability import check_total_probability
from chainrule.testing._sequence_subject import SequenceSubject
from chainrule.testing._stepping import (
    check_chunk_invariance,
    check_codec,
    check_log_prob_equals_forward,
    check_step_equals_forward,
)
from chainrule.testing._subject import DoesNotApply

CHECKS: tuple[Check, ...] = (
    check_posterior,
    check_kl_divergence,
    check_bounds,
    check_decoder,
    check_causality,
    check_full_context,
    check_step_equals_forward,
    check_log_prob_equals_forward,
    check_total_probability,
    check_samples_follow_log_prob,
    check_batch_independence,
    check_padding_invariance,
    check_gradients_reach_parameters,
    check_save_load,
    check_reproducible,
    check_chunk_invariance,
    check_conditions,
)
PROBING: tuple[Check, ...] = (check_padding_invariance, check_reproducible)  # together they call every method


def check_model(
    model: TrainableModel,
    x: Tensor,
    context: Context = None,
    lengths: Tensor | None = None,
    *,
    seed: int = 0,
    thorough: bool = True,
) -> Report:
    """Test on the given rows that a model keeps its contract, with every check that applies to its kind.

    The contract is defined by `AutoregressiveModel`, by `LatentModel`, or by `LikelihoodModel` for labels p(y | x). A
    model of labels has `forward(context)`, or `forward(context, lengths)` if every element has a label, which returns
    the distribution of the labels, and `log_prob(y, context, lengths)`.

    The checks work on copies in float64 and evaluation mode, except `check_conditions`, which calls the model as it is
    trained and used. They leave the model, its gradients and the global random state unchanged. The arguments determine
    the result. Wide models take seconds: 4 rows of 32 elements suffice. Only `check_conditions` uses more than 4 rows.
    Small models with a latent code are tested further, by estimating the likelihood from the prior.

    A model that reads less than all earlier elements declares it in `AutoregressiveModel.visible_past`.

    These checks are tests, not a proof. They miss faults that appear only for other sequences, weights or contexts, at
    longer lengths or other batch sizes, on another device, under autocast, `torch.compile` or another number of
    threads, at one state of the random generators, or below rounding; and faults of the data.

    Args:
        model: any model of the contract, of discrete or continuous elements.
        x: (B, T) typical sequences, or (B, ...) rows; labels of rows (B,) or of elements (B, T).
        context: context of x, batch first. For labels, the inputs; if labels have no time axis, the lengths of the
            inputs are in `context["lengths"]`.
        lengths: (B,) lengths of the rows of x without padding.
        seed: seed of all random choices of the checks.
        thorough: false draws a quarter of the samples and a fifth of the latent codes, and tries fewer filters, for
            tests that run often. It takes about two thirds of the time, and misses faults that only many draws reveal.

    Returns:
        A report with `.ok`, and `.results` with a `.name`, `.ok`, `.detail` and `.applies` for each rule.

    >>> import torch
    >>> from chainrule.models import RecurrentLM, SequenceTagger
    >>> words = torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]])
    >>> check_model(RecurrentLM(vocab_size=5, cell="gru", hidden_size=8), words).ok
    True
    >>> tagger = SequenceTagger(num_tags=3, vocab_size=5, embedding_size=4, hidden_size=4)
    >>> check_model(tagger, words % 3, words, torch.tensor([4, 2])).ok
    True
    """
    kind = kind_of(model, *KINDS)
    checks = [check for check in CHECKS if kind in check.kinds]
    return Report(all_results(checks, PROBING, model, x, context, lengths, seed, thorough))


RULES: dict[str, Check] = {check.__name__.removeprefix("check_"): check for check in (*CHECKS, check_codec)}


def check_rule(
    rule: str,
    model: TrainableModel,
    x: Tensor,
    context: Context = None,
    lengths: Tensor | None = None,
    *,
    seed: int = 0,
) -> Result:
    """Test one rule of the contract alone, by its name in the report of `check_model`.

    The rule `codec`, which `check_model` leaves out, tests that `chainrule.coding` restores x exactly, in as many bits
    as the likelihood promises, and detects damage.

    Args:
        rule: name of the rule, such as causality, full_context, step_equals_forward, total_probability or codec.
        model, x, context, lengths, seed: as in `check_model`.

    Returns:
        The result of the rule.

    Raises:
        ValueError: the rule does not exist, or the model is of a kind that it is not for.

    >>> import torch
    >>> from chainrule.models import RecurrentLM
    >>> check_rule("chunk_invariance", RecurrentLM(vocab_size=5, hidden_size=8), torch.tensor([[0, 1, 2, 3]])).ok
    True
    """
    if rule not in RULES:
        raise ValueError(f"rule: expected one of {', '.join(RULES)}, got {rule!r}")
    return RULES[rule](model, x, context, lengths, seed=seed)


SHORT = 16  # number of symbols by which `check` determines the shift

# Explanations of broken rules for modules from elsewhere.
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

    `from_logits` adapts the module, and `check_model` tests the result. Among others, the report detects

    - a leak: logits that depend on the symbols that they predict, or on later ones (`causality`);
    - a wrong shift: logits that predict another position than declared (`shift`);
    - rows that influence each other, for example by batch normalisation (`batch_independence`, or `conditions` if only
      in training mode);
    - padding that influences anything (`padding_invariance`; `left_padding` if `forward` takes a mask);
    - a cache that disagrees with the full pass (`step_equals_forward`; `chunk_invariance` if only when it reads several
      symbols at once).

    A module with a limited context passes, and the report states how many symbols it sees. For an `AutoregressiveModel`
    that `from_logits` did not build, this function calls `check_model`. The module, its gradients and the global random
    state are left unchanged.

    Args:
        module: the module; see `from_logits`, also for the search for a cache.
        example: (B, T) typical integer symbols; 4 rows of 32 symbols suffice.
        start: symbol that begins every sequence; implies that logits[:, t] predict x[:, t + 1].
        shifted: true if logits[:, t] predict x[:, t + 1], false if x[:, t]. By default determined by replacing symbols.
        cache: False ignores the module's cache.
        step: function that reads one more symbol from a cache, see `from_logits`.
        seed: seed of all random choices of the checks.

    Returns:
        A report with `.ok`, `.failures`, and a printed row for each rule.

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
    widened = Widened()
    if _is_random(as_read, example, seed, widened):
        shift = Result(
            "shift", True, "does not apply: the same input has other logits (see reproducible)", applies=False
        )
        return Report([shift, *check_model(model, example, seed=seed).results])
    lags = _lags(as_read, example, seed, widened if widened.replaced else nullcontext())
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
    """Return the example, the module as a sequence model, and `shifted` if declared."""
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
        raise ValueError(f"example: expected symbols in [0, {model.vocab_size}), the number of the module's logits")
    try:
        with torch.no_grad(), evaluating(module):
            model(example[:1].to(device_of(model)))
    except Exception as error:
        shape, reason = tuple(example[:1].shape), " ".join(str(error).split())
        raise ValueError(f"example: for shape {shape} the module raised {type(error).__name__}: {reason}") from error
    return example, model, shifted


def _fitted(module: nn.Module, time: int, **options: Any) -> LogitsModel:
    try:
        return from_logits(module, **options)
    except ValueError as error:
        try:
            return from_logits(module, length=time, **options)  # the module has a fixed number of positions
        except ValueError:
            raise error from error.__cause__


def _is_random(model: LogitsModel, example: Tensor, seed: int, widening: AbstractContextManager) -> bool:
    with isolated(seed, device_of(model), widening), torch.no_grad():
        subject = SequenceSubject(model, example, None, None, seed)
        first, again = (subject.numbers(subject.batch()) for _ in range(2))
        return bool(distance(first, again).any())


def _lags(model: LogitsModel, example: Tensor, seed: int, widening: AbstractContextManager) -> Tensor:
    """Return the differences t - s for which logits[:, t] can change with x[:, s]."""
    with isolated(seed, device_of(model), widening), torch.no_grad():
        subject = SequenceSubject(model, example, None, None, seed)
        x = subject.beginning(SHORT)
        positions = torch.arange(x.shape[1])
        seen = torch.zeros(len(positions), len(positions), dtype=torch.bool)
        for _, other in weighted(subject, "fresh", "uneven", "biased"):
            for position in positions.split(1):  # one at a time: otherwise rows that influence each other mislead
                seen |= influence(subject, other, x, position, ROUNDING)
            x = subject.altered(x)
        return (positions.unsqueeze(1) - positions)[seen]


def _shift(lags: Tensor, declared: bool | None) -> Result:
    """Report the symbol that logits[:, t] predict, judged by the last symbol x[:, t - lag] that they depend on."""
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
    """Repeat `full_context` with a measured window, for modules that see only the last symbols."""
    with isolated(seed, device_of(model)), torch.no_grad():
        subject = SequenceSubject(model, example, None, None, seed)
        x = subject.beginning(LONGEST)
        positions = torch.arange(x.shape[1])
        seen = torch.stack([influence(subject, other, x, positions) for _, other in weighted(subject, *DRAWS)]).any(0)
    window = max((positions.unsqueeze(1) - positions)[seen].tolist(), default=0)
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
            fault = "the cache disagrees with the full pass" if cache else "a prefix alone has other logits"
            return replace(result, detail=f"{fault}: {result.detail}")
        how = f"through `{model.call.cache_name or 'step'}`" if cache else "no cache, every prefix is read alone"
        return replace(result, detail=f"{how}: {result.detail}") if result.applies else result
    if result.ok or result.name not in FAULTS:
        return result
    return replace(result, detail=f"{FAULTS[result.name]}: {result.detail}")


@contract_check(SequenceSubject)
@torch.no_grad()
def check_left_padding(subject: SequenceSubject) -> str:
    """Check that masked padding on the left does not change the logits of the symbols after it.

    This applies to modules adapted by `from_logits` whose `forward` takes `attention_mask` or `key_padding_mask`; it
    passes `position_ids` to modules that take them.
    """
    model = subject.model
    if not isinstance(model, LogitsModel) or not model.call.takes_mask:
        raise DoesNotApply("forward takes no attention_mask or key_padding_mask")
    padding = min(3, subject.time - 1)
    x = subject.x[:, : subject.time - padding]
    padded = torch.cat([subject.x[:, -padding:], x], 1)
    real = torch.arange(subject.time, device=subject.device).expand_as(padded) >= padding
    alone, behind = (model.call.logits(model.module, *rows).log_softmax(-1) for rows in ((x,), (padded, real)))
    message = "logits at {t} of row {row} differ by {gap} nats behind padding"
    require_equal(behind[:, padding:], alone, rounding(subject, subject.of(x)), message)
    return f"{len(x)} rows behind {padding} symbols of padding"
