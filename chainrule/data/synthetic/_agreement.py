"""Agreement of a verb with its subject across a clause."""

import math

import torch

from chainrule.data.synthetic._task import SymbolTask, SyntheticBatch, check_count

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

    the verb adding nothing. It is what a language model trained on `text` reaches at best; one that knows all but the
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
