"""Parity."""

import math

import torch

from chainrule.data.synthetic.task import SymbolTask, SyntheticBatch, check_count


class Parity(SymbolTask):
    r"""Say whether a row of bits has an odd number of ones.

    .. math:: y = x_1 \oplus x_2 \oplus \cdots \oplus x_T

    The bits are uniform and independent; the answer is due after the last.

    **Chance.** Whatever the last bit is, the parity of the others is uniform, and so is that of all: ln 2 nats, and
    half of the answers right. The same holds for whoever has forgotten any single bit: nothing short of all of them
    helps, which is why a gradient finds no hold here even where it does not vanish (Shalev-Shwartz, Shamir and Shammah
    2017).

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
        super().__init__(
            length=length,
            distance=length - 1,
            input_size=2,
            output_size=2,
            chance=math.log(2),
            chance_accuracy=0.5,
            optimum=0.0,
        )

    def sample(self, n: int, generator: torch.Generator) -> SyntheticBatch:
        """Draw n rows: inputs and targets (n, T) of bits, mask (n, T), true at the last step."""
        check_count("n", n, 1)
        inputs = torch.randint(2, (n, self.length), generator=generator, device=generator.device)
        targets = torch.zeros_like(inputs)
        targets[:, -1] = inputs.sum(1) % 2
        mask = torch.zeros_like(inputs, dtype=torch.bool)
        mask[:, -1] = True
        return SyntheticBatch(inputs, targets, mask)
