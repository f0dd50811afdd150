"""The one place where likelihoods become reported figures: nats are measured, everything else is made here."""

import math


def bits(nats: float) -> float:
    r"""Nats as bits: :math:`\text{nats} / \ln 2`.

    >>> bits(math.log(8))
    3.0
    """
    return nats / math.log(2)


def per_element(nats: float, elements: int) -> float:
    """The mean over elements, each weighing the same.

    Raises:
        ValueError: there is no element to average over.
    """
    if elements < 1:
        raise ValueError(f"elements: expected at least 1 to average over, got {elements}: the data is empty")
    return nats / elements


def perplexity(nats: float, elements: int) -> float:
    r"""The number of equally likely symbols that would surprise as much: :math:`e^{\text{nats} / \text{elements}}`.

    Infinite where a double cannot hold it.

    >>> round(perplexity(10 * math.log(27), 10), 6)
    27.0
    """
    mean = per_element(nats, elements)
    return math.exp(mean) if mean < 709 else math.inf
