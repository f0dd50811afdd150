"""Weights of averaged classifiers and their temperature, from their answers to held-out rows."""

from typing import Protocol

import torch
from torch import Tensor

from chainrule._base import Context

_PULL = 5.0  # rows that the pull to equal weights and to a temperature of 1 is worth
_ROUNDS = 200
_HALVINGS = 50
_COLDEST, _HOTTEST = 0.1, 10.0


class LabelledRows(Protocol):
    """Labels and their condition, as training reads them: `chainrule.training.Batch`."""

    @property
    def x(self) -> Tensor: ...
    @property
    def context(self) -> Context: ...


def fitted_shares(log_probs: Tensor) -> Tensor:
    r"""Return the weights of K classifiers that maximise the likelihood of their mean, by EM.

    .. math:: \sum_n \log \sum_k w_k p_k(y_n) + \frac{a}{K} \sum_k \log w_k

    The second term, highest at equal weights, keeps each of them positive.

    Args:
        log_probs: (K, N) log p of the right labels.
    """
    classifiers = len(log_probs)
    shares = log_probs.new_full((classifiers,), 1 / classifiers)
    for _ in range(_ROUNDS):
        taken = (log_probs + shares.log().unsqueeze(1)).softmax(0).sum(1) + _PULL / classifiers
        shares = taken / taken.sum()
    return shares


def fitted_temperature(log_probs: Tensor, labels: Tensor) -> float:
    r"""Return the temperature T that maximises the likelihood of labels; its slope by 1/T falls.

    .. math:: \sum_n \log \mathrm{softmax}(\log p_n / T)_{y_n} - \frac{a}{2} \left(\frac{1}{T} - 1\right)^2

    At T = 1 the second term is 0, so that the likelihood is never worse than there (Guo et al. 2017).

    Args:
        log_probs: (N, C) of all labels.
        labels: (N,) the right ones.

    >>> sure, wrong = torch.tensor([[0.9, 0.1]] * 10).double().log(), torch.tensor([0, 1] * 5)
    >>> fitted_temperature(sure, wrong) > 2
    True
    """
    right = log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    low, high = 1 / _HOTTEST, 1 / _COLDEST
    for _ in range(_HALVINGS):
        inverse = (low + high) / 2
        shares = (inverse * log_probs).softmax(1)
        expected = torch.where(shares > 0, shares * log_probs, 0.0).sum(1)
        if float((right - expected).sum()) - _PULL * (inverse - 1) > 0:
            low = inverse
        else:
            high = inverse
    return 2 / (low + high)
