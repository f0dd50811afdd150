"""Delayed recall."""

import math

import torch

from chainrule.data.synthetic.task import SymbolTask, SyntheticBatch, check_count


class DelayedRecall(SymbolTask):
    r"""Keep the first symbol through noise, and say it when asked.

    The first element is one of K symbols 0 ... K − 1, uniform. Distractors follow, uniform and independent, of an
    alphabet of their own, K ... 2K − 1, so that what is to be kept can be told from what is to be ignored. The last
    element is the question, `query` = 2K; the answer is the first element.

    **Chance.** The question is always the same, so without memory the answer is uniform: ln K nats, and 1/K of the
    answers right.

    **Optimum.** The answer was read: 0 nats.

    **Distance.** d, from the first element to the question; T = d + 1.

    Source: the latching problem of Bengio, Simard and Frasconi 1994, with the random distractors of experiment 2c in
    Hochreiter and Schmidhuber 1997 and of the random permutation problem in Martens and Sutskever 2011.

    Args:
        distance: d, at least 1; there are d − 1 distractors.
        symbols: K, at least 2.

    >>> task = DelayedRecall(distance=4, symbols=8)
    >>> batch = task.sample(2, torch.Generator().manual_seed(0))
    >>> batch.inputs
    tensor([[ 4, 15, 13,  8, 16],
            [ 3, 11, 15,  9, 16]])
    >>> batch.targets[batch.mask], round(task.chance, 4), task.chance_accuracy
    (tensor([4, 3]), 2.0794, 0.125)
    """

    def __init__(self, distance: int, symbols: int = 8):
        check_count("distance", distance, 1)
        check_count("symbols", symbols, 2)
        super().__init__(
            length=distance + 1,
            distance=distance,
            input_size=2 * symbols + 1,
            output_size=symbols,
            chance=math.log(symbols),
            chance_accuracy=1 / symbols,
            optimum=0.0,
        )
        self.symbols = symbols
        self.query = 2 * symbols

    def sample(self, n: int, generator: torch.Generator) -> SyntheticBatch:
        """Draw n rows: inputs and targets (n, T) of integers, mask (n, T), true at the last step."""
        check_count("n", n, 1)
        inputs = torch.randint(self.symbols, (n, self.length), generator=generator, device=generator.device)
        inputs[:, 1:] += self.symbols
        inputs[:, -1] = self.query
        targets = torch.zeros_like(inputs)
        targets[:, -1] = inputs[:, 0]
        mask = torch.zeros_like(inputs, dtype=torch.bool)
        mask[:, -1] = True
        return SyntheticBatch(inputs, targets, mask)
