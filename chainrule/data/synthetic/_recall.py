"""Memory tasks on symbols: delayed recall, the copying task and parity."""

import math

import torch

from chainrule.data.synthetic._task import SymbolTask, SyntheticBatch, check_count


class DelayedRecall(SymbolTask):
    r"""Keep the first symbol through noise, and say it when asked.

    The first element is one of K symbols 0 ... K − 1, uniform. Distractors follow, uniform and independent, from a
    separate alphabet, K ... 2K − 1, which tells the symbol to keep from the symbols to ignore. The last
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
        self.length, self.distance = distance + 1, distance
        self.input_size, self.output_size = 2 * symbols + 1, symbols
        self.chance, self.chance_accuracy = math.log(symbols), 1 / symbols
        self.symbols, self.query = symbols, 2 * symbols

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
        self.length, self.distance = length, delay + payload
        self.input_size, self.output_size = symbols + 2, symbols + 1
        self.chance = payload * math.log(symbols) / length
        self.chance_accuracy = (length - payload + payload / symbols) / length
        self.delay, self.symbols, self.payload = delay, symbols, payload
        self.blank, self.delimiter = symbols, symbols + 1

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


class Parity(SymbolTask):
    r"""Say whether a row of bits has an odd number of ones.

    .. math:: y = x_1 \oplus x_2 \oplus \cdots \oplus x_T

    The bits are uniform and independent; the answer is due after the last.

    **Chance.** Given the last bit, the parity of the others is uniform, and so is the answer: ln 2 nats, and
    half of the answers right. The same holds for a predictor that has forgotten any single bit. No part of the
    solution lowers the loss, so gradients give no direction even if they do not vanish (Shalev-Shwartz, Shamir and
    Shammah 2017).

    **Optimum.** The answer is a function of the inputs: 0 nats. One bit of memory is enough.

    **Distance.** T − 1, from the first bit to the answer; every bit in between counts as well.

    Source: Minsky and Papert 1969; as a test of recurrent networks Bengio, Simard and Frasconi 1994.

    Args:
        length: T, at least 2.

    >>> task = Parity(length=6)
    >>> batch = task.sample(2, torch.Generator().manual_seed(0))
    >>> batch.inputs
    tensor([[0, 1, 1, 0, 1, 1],
            [1, 1, 1, 1, 1, 0]])
    >>> batch.targets[batch.mask], round(task.chance, 4)
    (tensor([0, 1]), 0.6931)
    """

    def __init__(self, length: int):
        check_count("length", length, 2, "the parity of a single bit asks for no memory")
        self.length, self.distance = length, length - 1
        self.input_size = self.output_size = 2
        self.chance, self.chance_accuracy = math.log(2), 0.5

    def sample(self, n: int, generator: torch.Generator) -> SyntheticBatch:
        """Draw n rows: inputs and targets (n, T) of bits, mask (n, T), true at the last step."""
        check_count("n", n, 1)
        inputs = torch.randint(2, (n, self.length), generator=generator, device=generator.device)
        targets = torch.zeros_like(inputs)
        targets[:, -1] = inputs.sum(1) % 2
        mask = torch.zeros_like(inputs, dtype=torch.bool)
        mask[:, -1] = True
        return SyntheticBatch(inputs, targets, mask)
