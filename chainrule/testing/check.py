"""All checks of the contract at once."""

from torch import Tensor

from chainrule.base import AutoregressiveModel, Context
from chainrule.testing.batch_independence import check_batch_independence
from chainrule.testing.causality import check_causality
from chainrule.testing.chunk_invariance import check_chunk_invariance
from chainrule.testing.conditions import check_conditions
from chainrule.testing.full_context import check_full_context
from chainrule.testing.gradients import check_gradients_reach_parameters
from chainrule.testing.padding_invariance import check_padding_invariance
from chainrule.testing.report import Report
from chainrule.testing.reproducible import check_reproducible
from chainrule.testing.sampling import check_samples_follow_log_prob
from chainrule.testing.saving import check_save_load
from chainrule.testing.step_equals_forward import check_step_equals_forward
from chainrule.testing.total_probability import check_total_probability

CHECKS = (
    check_causality,
    check_full_context,
    check_step_equals_forward,
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


def check_model(
    model: AutoregressiveModel,
    x: Tensor,
    context: Context = None,
    lengths: Tensor | None = None,
    *,
    seed: int = 0,
) -> Report:
    """Test that a model keeps the contract of `AutoregressiveModel`, on the given sequences.

    Every check works on a copy of its own in float64 and evaluation mode, but for `check_conditions`, which calls the
    model as it is trained and used: the model, its gradients and the global random state are left as they are. The
    answer is fixed by the arguments. A wide model takes seconds: 4 rows of 32 elements are plenty. Of more than 4 rows
    the first 4 are used, and all of them in `check_conditions`.

    A model that reads less than all earlier elements declares it in `AutoregressiveModel.visible_past`.

    These are tests, and no proof. They cannot see what shows only for other sequences, weights or contexts than those
    tried, at longer lengths or other batch sizes, on another device, under autocast, `torch.compile` or another number
    of threads, at one state of the random generators, or as a difference below rounding; nor a fault of the data.

    Args:
        model: any model of the contract, of discrete or continuous elements.
        x: (B, T) sequences that the model is meant for.
        context: their condition, batch first.
        lengths: (B,) real elements of each row.
        seed: of every random choice of the checks.

    Returns:
        A report with `.ok`, and `.results` with a `.name`, `.ok`, `.detail` and `.applies` for each rule.

    Raises:
        ValueError: the arguments do not fit together.

    >>> import torch
    >>> from chainrule.models import RecurrentLM
    >>> model = RecurrentLM(vocab_size=5, cell="gru", hidden_size=8)
    >>> report = check_model(model, torch.tensor([[0, 1, 2, 3], [4, 3, 2, 1]]))
    >>> report.ok
    True
    """
    return Report([check(model, x, context, lengths, seed=seed) for check in CHECKS])
