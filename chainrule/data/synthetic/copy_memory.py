"""The copying task."""

import math

import torch

from chainrule.data.synthetic.task import SymbolTask, SyntheticBatch, check_count


class CopyMemory(SymbolTask):
    r"""Read some symbols, wait, and say them again in the same order.

    Of K symbols, P are drawn uniformly and independently; `blank` is the symbol K, `delimiter` the symbol K + 1. With a
    delay of D steps a row has T = D + 2P elements:

    ========  ===========  ===================  =========================
    step      the first P  the next D           the last P
    ========  ===========  ===================  =========================
    input     the payload  blank ... delimiter  blank
    target    blank        blank                the payload, in its order
    ========  ===========  ===================  =========================

    **Chance.** Every step is scored. Without memory the blanks are known and the payload is uniform:

    .. math:: \frac{P \ln K}{T} \text{ nats per step}, \qquad \frac{T - P + P/K}{T} \text{ of the steps right.}

    **Optimum.** The targets are a function of the inputs already read: 0 nats.

    **Distance.** D + P, the same for each symbol of the payload.

    Source: Arjovsky, Shah and Bengio 2016, with K = 8 and P = 10, after Hochreiter and Schmidhuber 1997.

    Args:
        delay: D, at least 1.
        symbols: K, at least 2.
        payload: P, at least 1.

    >>> task = CopyMemory(delay=3, symbols=8, payload=2)
    >>> batch = task.sample(1, torch.Generator().manual_seed(0))
    >>> batch.inputs
    tensor([[4, 7, 8, 8, 9, 8, 8]])
    >>> batch.targets
    tensor([[8, 8, 8, 8, 8, 4, 7]])
    >>> CopyMemory(delay=100).distance, round(CopyMemory(delay=100).chance, 4)
    (110, 0.1733)
    """

    def __init__(self, delay: int, symbols: int = 8, payload: int = 10):
        check_count("delay", delay, 1)
        check_count("symbols", symbols, 2)
        check_count("payload", payload, 1)
        length = delay + 2 * payload
        super().__init__(
            length=length,
            distance=delay + payload,
            input_size=symbols + 2,
            output_size=symbols + 1,
            chance=payload * math.log(symbols) / length,
            chance_accuracy=(length - payload + payload / symbols) / length,
            optimum=0.0,
        )
        self.delay = delay
        self.symbols = symbols
        self.payload = payload
        self.blank = symbols
        self.delimiter = symbols + 1

    def sample(self, n: int, generator: torch.Generator) -> SyntheticBatch:
        """Draw n rows: inputs and targets (n, T) of integers, mask (n, T), all true."""
        check_count("n", n, 1)
        payload = torch.randint(self.symbols, (n, self.payload), generator=generator, device=generator.device)
        inputs = payload.new_full((n, self.length), self.blank)
        targets = inputs.clone()
        inputs[:, : self.payload] = payload
        inputs[:, self.payload + self.delay - 1] = self.delimiter
        targets[:, -self.payload :] = payload
        return SyntheticBatch(inputs, targets, torch.ones_like(inputs, dtype=torch.bool))
