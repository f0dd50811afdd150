"""All checks of the contract at once."""

from torch import Tensor

from chainrule._base import Context, TrainableModel
from chainrule.testing._batch_independence import check_batch_independence
from chainrule.testing._causality import check_causality
from chainrule.testing._chunk_invariance import check_chunk_invariance
from chainrule.testing._conditions import check_conditions
from chainrule.testing._contract_check import KINDS, Check, kind_of
from chainrule.testing._full_context import check_full_context
from chainrule.testing._gradients import check_gradients_reach_parameters
from chainrule.testing._labels import check_log_prob_is_that_of_forward
from chainrule.testing._latent_bounds import check_bounds, check_kl_divergence, check_posterior
from chainrule.testing._latent_decoder import check_decoder
from chainrule.testing._padding_invariance import check_padding_invariance
from chainrule.testing._report import Report
from chainrule.testing._reproducible import check_reproducible
from chainrule.testing._sampling import check_samples_follow_log_prob
from chainrule.testing._saving import check_save_load
from chainrule.testing._step_equals_forward import check_step_equals_forward
from chainrule.testing._total_probability import check_total_probability

CHECKS: tuple[Check, ...] = (
    check_posterior,
    check_kl_divergence,
    check_bounds,
    check_decoder,
    check_causality,
    check_full_context,
    check_step_equals_forward,
    check_log_prob_is_that_of_forward,
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
    model: TrainableModel, x: Tensor, context: Context = None, lengths: Tensor | None = None, *, seed: int = 0
) -> Report:
    """Test that a model keeps its contract, on the given rows: every check that applies to models of its kind.

    The contract is that of `AutoregressiveModel`, of `LatentModel`, or of a `LikelihoodModel` of labels p(y | x), whose
    `forward(context)`, or `forward(context, lengths)` where every element has a label, returns the distribution of the
    labels, and whose `log_prob(y, context, lengths)` is their log-probability.

    Every check works on a copy of its own in float64 and evaluation mode, but for `check_conditions`, which calls the
    model as it is trained and used: the model, its gradients and the global random state are left as they are. The
    answer is fixed by the arguments. A wide model takes seconds: 4 rows of 32 elements are plenty. Of more than 4 rows
    the first 4 are used, and all of them in `check_conditions`. A small model with a latent code is tested harder: its
    likelihood can be estimated from the prior.

    A model that reads less than all earlier elements declares it in `AutoregressiveModel.visible_past`.

    These are tests, and no proof. They cannot see what shows only for other sequences, weights or contexts than those
    tried, at longer lengths or other batch sizes, on another device, under autocast, `torch.compile` or another number
    of threads, at one state of the random generators, or as a difference below rounding; nor a fault of the data.

    Args:
        model: any model of the contract, of discrete or continuous elements.
        x: (B, T) sequences that the model is meant for, or (B, ...) rows; labels of rows (B,) or of elements (B, T).
        context: their condition, batch first; of labels the inputs, whose `context["lengths"]` says how long they are
            where labels have no time axis.
        lengths: (B,) real elements of each row of x.
        seed: of every random choice of the checks.

    Returns:
        A report with `.ok`, and `.results` with a `.name`, `.ok`, `.detail` and `.applies` for each rule.

    Raises:
        ValueError: the arguments do not fit together.

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
    return Report([check(model, x, context, lengths, seed=seed) for check in CHECKS if kind in check.kinds])
