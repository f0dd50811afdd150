"""Base of the tasks of memory: a batch, and the facts against which a network is measured."""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F


class SyntheticBatch(NamedTuple):
    """Rows of one length, with the answers and the steps at which they are due.

    Attributes:
        inputs: (B, T) integers in [0, N), or (B, T, N) features.
        targets: (B, T), the answer after reading the element of that step; it counts where `mask` is true.
        mask: (B, T) booleans, true at the steps that are scored.
    """

    inputs: Tensor
    targets: Tensor
    mask: Tensor


class SyntheticTask(ABC):
    """A task whose answer comes a known number of steps before the question.

    `chance` and `chance_accuracy` belong to the best predictor without memory: it knows the present element x_t, the
    number t of the step and how the task is drawn, but nothing of x_<t. `optimum` is the loss of the best predictor
    that has read all of x_1 ... x_t; its accuracy is 1 in every task here.

    Attributes:
        length: T, elements of a row.
        distance: steps from reading the relevant element to giving the answer.
        input_size: N, features of an element, or the number of input symbols: the input size of a recurrent layer.
        output_size: values that a network gives at each step: the symbols among which it chooses, or 1.
        chance: the least loss that can be had without memory: nats for symbols, else squared error.
        chance_accuracy: the largest share of right answers that can be had without memory.
        optimum: the loss of the perfect predictor, in the unit of `chance`.
    """

    length: int
    distance: int
    input_size: int
    output_size: int
    chance: float
    chance_accuracy: float
    optimum: float = 0.0

    def __repr__(self) -> str:
        return f"{type(self).__name__}(length={self.length}, distance={self.distance})"

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator) -> SyntheticBatch:
        """Draw n independent rows, on the generator's device; the same seed gives the same rows."""

    @abstractmethod
    def loss(self, outputs: Tensor, batch: SyntheticBatch) -> Tensor:
        """Return the mean loss of the scored steps, to be compared with `chance` and `optimum`.

        Args:
            outputs: (B, T, output_size), outputs of a network after reading each element.
            batch: the rows it read.
        """

    @abstractmethod
    def accuracy(self, outputs: Tensor, batch: SyntheticBatch) -> float:
        """Return the share of right answers among the scored steps, to be compared with `chance_accuracy` and 1."""


class SymbolTask(SyntheticTask):
    """A task that is answered with a symbol; the outputs of a network are logits (B, T, V)."""

    def loss(self, outputs: Tensor, batch: SyntheticBatch) -> Tensor:
        """Return the mean cross-entropy of the scored steps, nats."""
        return F.cross_entropy(outputs[batch.mask], batch.targets[batch.mask])

    def accuracy(self, outputs: Tensor, batch: SyntheticBatch) -> float:
        """Return the share of scored steps at which the right symbol is the most probable one."""
        right = outputs[batch.mask].argmax(-1) == batch.targets[batch.mask]
        return right.float().mean().item()


def check_count(name: str, value: int, least: int, reason: str = "") -> None:
    """`ValueError` unless `value` is a whole number of at least `least`."""
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: expected a whole number >= {least}{reason and ': ' + reason}, got {value!r}")


TOLERANCE = 0.04


class AddingProblem(SyntheticTask):
    r"""Add the two marked numbers of a long list.

    An element is (v_t, m_t): a number v_t, uniform on [0, 1), and a marker m_t, which is 1 at two steps and 0
    elsewhere. One marked step a is uniform in the first half, the other b in the second half, the last step left out.
    After the last element the answer is due:

    .. math:: y = v_a + v_b

    **Chance.** The last element carries no marker, so without memory nothing is known of v_a and v_b, and the best
    answer is the mean, 1. Its squared error is the variance of a sum of two independent uniform numbers,

    .. math:: \operatorname{Var} y = 2 \left( \int_0^1 v^2\,dv - \tfrac{1}{4} \right)
              = 2 \left( \tfrac{1}{3} - \tfrac{1}{4} \right) = \tfrac{1}{6} .

    **Accuracy.** An answer within ε = 0.04 counts as right (Hochreiter and Schmidhuber 1997). The density of y is the
    triangle 1 − abs(y − 1), which has most mass around 1: without memory at most 2ε − ε² = 0.0784 of the answers are
    right.

    **Optimum.** The answer is a function of the inputs: squared error 0.

    **Distance.** From the first half's last step to the answer, T − ⌊T/2⌋: the *least* distance of v_a, as Hochreiter
    and Schmidhuber count it; the largest is T − 1.

    Source: Hochreiter and Schmidhuber 1997, experiment 4; in this form Le, Jaitly and Hinton 2015 and Arjovsky, Shah
    and Bengio 2016, who let the last step be marked too.

    Args:
        length: T, at least 3.

    >>> task = AddingProblem(length=100)
    >>> task.distance, round(task.chance, 4), task.optimum
    (50, 0.1667, 0.0)
    >>> batch = task.sample(4, torch.Generator().manual_seed(0))
    >>> batch.inputs.shape, batch.targets.shape, batch.mask.sum(1)
    (torch.Size([4, 100, 2]), torch.Size([4, 100]), tensor([1, 1, 1, 1]))
    """

    def __init__(self, length: int):
        check_count("length", length, 3, "two marked steps, and the last, which is never marked")
        self.length, self.distance = length, length - length // 2
        self.input_size, self.output_size = 2, 1
        self.chance, self.chance_accuracy = 1 / 6, 2 * TOLERANCE - TOLERANCE**2

    def sample(self, n: int, generator: torch.Generator) -> SyntheticBatch:
        """Draw n lists: inputs (n, T, 2), targets (n, T) with the sum at the last step, mask (n, T)."""
        check_count("n", n, 1)
        device, half = generator.device, self.length // 2
        values = torch.rand(n, self.length, generator=generator, device=device)
        first = torch.randint(0, half, (n, 1), generator=generator, device=device)
        second = torch.randint(half, self.length - 1, (n, 1), generator=generator, device=device)
        marked = torch.cat([first, second], 1)
        markers = torch.zeros_like(values).scatter_(1, marked, 1)
        targets = torch.zeros_like(values)
        targets[:, -1] = values.gather(1, marked).sum(1)
        mask = torch.zeros_like(values, dtype=torch.bool)
        mask[:, -1] = True
        return SyntheticBatch(torch.stack([values, markers], -1), targets, mask)

    def loss(self, outputs: Tensor, batch: SyntheticBatch) -> Tensor:
        """Return the mean squared error of the answers."""
        return F.mse_loss(outputs[batch.mask].squeeze(-1), batch.targets[batch.mask])

    def accuracy(self, outputs: Tensor, batch: SyntheticBatch) -> float:
        """Return the share of answers within 0.04 of the sum."""
        error = outputs[batch.mask].squeeze(-1) - batch.targets[batch.mask]
        return (error.abs() < TOLERANCE).float().mean().item()


FIXED = (".", "the", ",", "which")
VERBS = ("was", "were")  # in the order singular, plural, as the nouns are
NOUNS = tuple(
    form for noun in ("cat", "dog", "bird", "horse", "goat", "duck", "lion", "bear") for form in (noun, noun + "s")
)
DEGREES = ("very", "rather", "quite", "so")
ADVERBS = ("quietly", "slowly", "suddenly", "happily")
ACTIONS = ("saw", "chased", "followed", "heard", "watched", "liked", "feared", "found")
PREPOSITIONS = ("near", "behind", "beside", "beyond")
PREDICATES = ("hungry", "tired", "asleep", "happy", "old", "brave", "cold", "gone")
SHORTEST = 6  # , which ACTION the NOUN ,


class SubjectVerbAgreement(SymbolTask):
    r"""Predict the next word of sentences whose verb agrees with a subject some words back.

    ``the cats , which saw the dog near the bird , were hungry .`` Between the subject and its verb is a clause of
    exactly `distance` words, its commas counted. Every choice in a sentence is uniform and independent of the others,
    except the choice of the verb:

    - ``the`` SUBJECT, one of 8 nouns, singular or plural;
    - ``, which`` [[DEGREE] ADVERB] ACTION ``the`` NOUN, then PREPOSITION ``the`` NOUN as often as there is room,
      and ``,``; the adverbs fill what is left over three. These nouns are singular or plural at random, so the
      last noun's number predicts nothing. Their verb is in the past tense, which has no number;
    - ``was`` or ``were``, as the subject's number has it, PREDICATE and ``.``

    Inputs are the words without the last, targets the words without the first: the target of a step is the next word.
    The mask is true at one step, that before the verb.

    **Chance.** Before the verb comes ``,``, in every sentence: ln 2 nats, and half of the verbs right.

    **Optimum.** The subject decides: 0 nats.

    **The whole sentence.** The best model of the whole sentence has a cost too, the entropy of the grammar,
    `sentence_entropy`: with c_i choices at each place i,

    .. math:: H = \sum_i \ln c_i \text{ nats per sentence,}

    the verb adding nothing. It is the lowest cost of a language model trained on `text`; one that knows all but the
    agreement stays ln 2 above it.

    **Distance.** From the subject to the step at which its verb is predicted.

    Source: Linzen, Dupoux and Goldberg 2016; such grammars since Elman 1991.

    Args:
        distance: words between subject and verb, at least 6.

    >>> task = SubjectVerbAgreement(distance=11)
    >>> print(task.text(2, torch.Generator().manual_seed(0)), end="")
    the bears , which so happily heard the goats beyond the dog , were cold .
    the lion , which quite happily found the goat behind the goats , was tired .
    >>> batch = task.sample(2, torch.Generator().manual_seed(0))
    >>> [task.vocabulary[word] for word in batch.targets[batch.mask]]
    ['were', 'was']
    >>> round(task.sentence_entropy, 4), task.chance_accuracy
    (16.6355, 0.5)
    """

    vocabulary = (*FIXED, *VERBS, *NOUNS, *DEGREES, *ADVERBS, *ACTIONS, *PREPOSITIONS, *PREDICATES)

    def __init__(self, distance: int):
        check_count("distance", distance, SHORTEST, "the shortest clause is ', which saw the dog ,'")
        phrases, rest = divmod(distance - SHORTEST, 3)
        clause = [(",",), ("which",), *(DEGREES, ADVERBS)[2 - rest :], ACTIONS, ("the",), NOUNS]
        clause += [PREPOSITIONS, ("the",), NOUNS] * phrases + [(",",)]
        places = [("the",), NOUNS, *clause, ("was",), PREDICATES, (".",)]
        self.length, self.distance = len(places) - 1, distance
        self.input_size = self.output_size = len(self.vocabulary)
        self.chance, self.chance_accuracy = math.log(2), 0.5
        self.sentence_entropy = math.fsum(math.log(len(choices)) for choices in places)
        self._first = [self.vocabulary.index(choices[0]) for choices in places]
        self._choices = [len(choices) for choices in places]
        self._verb = 2 + distance

    def sample(self, n: int, generator: torch.Generator) -> SyntheticBatch:
        """Draw n sentences: inputs and targets (n, T) of numbers of words, mask (n, T), true before the verb."""
        check_count("n", n, 1)
        device = generator.device
        first, choices = (torch.tensor(of, device=device) for of in (self._first, self._choices))
        # A remainder is uniform where the number of choices divides the range that is drawn from.
        shape = (n, self.length + 1)
        drawn = torch.randint(math.lcm(*self._choices), shape, generator=generator, device=device)
        words = first + drawn % choices
        words[:, self._verb] += (words[:, 1] - self.vocabulary.index(NOUNS[0])) % 2
        mask = torch.zeros(n, self.length, dtype=torch.bool, device=device)
        mask[:, self._verb - 1] = True
        return SyntheticBatch(words[:, :-1], words[:, 1:], mask)

    def words(self, batch: SyntheticBatch) -> list[list[str]]:
        """Return the words of each sentence of a batch, the first and the last included."""
        rows = torch.cat([batch.inputs, batch.targets[:, -1:]], 1)
        return [[self.vocabulary[word] for word in row] for row in rows.tolist()]

    def text(self, n: int, generator: torch.Generator) -> str:
        """n sentences, one a line, words apart by a space: `chainrule train FILE --level word --reading lines`."""
        return "".join(" ".join(row) + "\n" for row in self.words(self.sample(n, generator)))
