"""Greedy decoding: the most probable symbol at every step."""

from torch import Tensor

from chainrule._base import AutoregressiveModel, Context
from chainrule.decoding._beam_search import beam_search
from chainrule.decoding._decoded import Decoded


def greedy(
    model: AutoregressiveModel,
    context: Context = None,
    *,
    max_length: int,
    eos: int | None,
    min_length: int = 0,
    no_repeat_ngram: int | None = None,
    prefix: Tensor | None = None,
) -> list[Decoded]:
    r"""Take the most probable symbol at every step, of equals the lowest.

    .. math:: x_t = \arg\max_v p(v \mid x_{<t}, c)

    It is the beam search of one prefix, and finds the sequences of `model.sample(temperature=0)`; rows that ended
    leave the batch.

    Args:
        model: any model over symbols; it searches in evaluation mode.
        context: as `beam_search` has it, and all that follows.
        max_length: most elements of a sequence, `<eos>` counted.
        eos: the symbol that ends a sequence; None where none does.
        min_length: fewest elements of a sequence, `<eos>` not counted.
        no_repeat_ngram: n; no n-gram may occur twice in a sequence. None allows repetition.
        prefix: the beginning of the sequences.

    Returns:
        For each row, one sequence. `proven` repeats `ended`: more probable sequences may exist, as none but the most
        probable symbol of each step was followed.

    >>> import torch
    >>> from chainrule.models import RecurrentLM
    >>> model = RecurrentLM(vocab_size=3, hidden_size=1)
    >>> _ = model.weight_ho.data.zero_(), model.bias_ho.data.copy_(torch.tensor([0.5, 0.2, 0.3]).log())
    >>> [result] = greedy(model, max_length=4, eos=2)
    >>> result.sequences[0].tolist(), result.proven
    ([0, 0, 0, 0], False)
    """
    return beam_search(
        model,
        context,
        beam_size=1,
        max_length=max_length,
        eos=eos,
        min_length=min_length,
        no_repeat_ngram=no_repeat_ngram,
        prefix=prefix,
    )
