"""Small conditional random fields, and what enumeration of all tag sequences says of them."""

import itertools
import math

import pytest
import torch

from chainrule.heads import LinearChainCRF, TagConstraints

LENGTHS = torch.tensor([4, 0, 1, 3, 2])


def drawn(*shape, seed=0, scale=2.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_crf(num_tags=3, seed=0, constraints=None):
    crf = LinearChainCRF(num_tags, constraints).double()
    for number, parameter in enumerate(crf.parameters()):
        parameter.data = drawn(*parameter.shape, seed=100 * seed + number + 1)
    return crf


def score(crf, emissions, tags):
    """s(y, e) of one row as the equation has it, and -inf for what the constraints forbid."""
    if not tags:
        return 0.0
    total = crf.starts[tags[0]] + crf.ends[tags[-1]] + sum(emissions[t, tag] for t, tag in enumerate(tags))
    total = total + sum(crf.transitions[a, b] for a, b in itertools.pairwise(tags))
    if crf.forbidden_starts is not None:
        forbidden = crf.forbidden_starts[tags[0]] or crf.forbidden_ends[tags[-1]]
        if forbidden or any(crf.forbidden_transitions[a, b] for a, b in itertools.pairwise(tags)):
            return -math.inf
    return float(total)


@torch.no_grad()
def enumerated(crf, emissions, length):
    """All possible tag sequences of one row with their log-probabilities, best first, and log Z."""
    sequences = [list(tags) for tags in itertools.product(range(crf.num_tags), repeat=length)]
    scores = torch.tensor([score(crf, emissions, tags) for tags in sequences], dtype=torch.float64)
    log_z = scores.logsumexp(0)
    pairs = zip((scores - log_z).tolist(), sequences, strict=True)
    return sorted((pair for pair in pairs if pair[0] > -math.inf), key=lambda pair: -pair[0]), float(log_z)


# Tag 2 never begins, ends or follows 0; 1 never follows itself.
CONSTRAINED = TagConstraints(
    torch.tensor([[True, True, False], [True, False, True], [True, True, True]]),
    torch.tensor([True, True, False]),
    torch.tensor([True, True, False]),
)


CRFS = pytest.mark.parametrize("constraints", [None, CONSTRAINED], ids=["free", "constrained"])
