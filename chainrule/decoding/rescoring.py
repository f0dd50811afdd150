"""The likelihood of sequences that a search found, each read by itself."""

from dataclasses import replace

import torch

from chainrule.base import AutoregressiveModel, Context
from chainrule.decoding.decoded import Decoded


@torch.no_grad()
def rescored(
    model: AutoregressiveModel, context: Context, found: Decoded, *, eos: int | None, length_penalty: float = 0.0
) -> Decoded:
    """The sequences that a search found for one row, with the log-likelihood of each read whole and alone.

    A search adds up the likelihood step by step beside other rows and prefixes, whose number changes the last digits.
    Read alone, a sequence has the same log-likelihood whatever it was searched with.

    Args:
        model: that was searched, in the same mode.
        context: of the row, (1, ...).
        found: its result.
        eos, length_penalty: as in the search.

    Returns:
        The same sequences in the order of their new scores, those that ended first.

    >>> from chainrule.decoding import beam_search
    >>> from chainrule.models import RecurrentLM
    >>> model = RecurrentLM(vocab_size=3, hidden_size=1).eval()
    >>> [found] = beam_search(model, beam_size=2, max_length=4, eos=2, n_best=2)
    >>> torch.allclose(rescored(model, None, found, eos=2).log_probs, found.log_probs)
    True
    """
    log_probs, scores = torch.zeros_like(found.log_probs), torch.zeros_like(found.scores)
    for place, (sequence, ended) in enumerate(zip(found.sequences, found.ended.tolist(), strict=True)):
        x = torch.cat([sequence, sequence.new_tensor([eos] if ended and eos is not None else [])]).unsqueeze(0)
        if x.shape[1]:
            log_probs[place] = model(x, context).log_prob(x).double().sum()
            scores[place] = log_probs[place] / x.shape[1] ** length_penalty
    order = sorted(range(len(scores)), key=lambda place: (not found.ended[place], -scores[place].item()))
    return replace(
        found,
        sequences=[found.sequences[place] for place in order],
        log_probs=log_probs[order],
        scores=scores[order],
        ended=found.ended[order],
    )
