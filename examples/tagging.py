"""Find genes in synthetic DNA: label each base as the beginning or inside of a gene, or as neither.

python examples/tagging.py [STEPS]

A gene is a start codon, some codons, and a stop codon. Start codons also occur by chance between genes, so that the
label of a base depends on both sides of it. A bidirectional LSTM reads the bases, and a conditional random field
chooses all labels of a sequence together.
"""

import sys
import tempfile

import numpy as np
import torch

from chainrule.data import Batch
from chainrule.heads import TagConstraints
from chainrule.metrics import entity_scores
from chainrule.models import SequenceTagger
from chainrule.training import TrainingOptions, train

BASES, TAGS = "ACGT", ["O", "B-gene", "I-gene"]
START, STOP, CODONS = "ATG", "TAA", ("GCA", "GCC", "CTG", "AAG", "GAC", "GGC")


def sequence(random: np.random.Generator) -> tuple[str, list[int]]:
    """Bases, and the label of each."""
    bases, labels = "", []
    for _ in range(random.integers(1, 4)):
        between = "".join(random.choice(list(BASES), random.integers(5, 25)))
        gene = START + "".join(random.choice(CODONS, random.integers(2, 9))) + STOP
        bases += between + gene
        labels += [0] * len(between) + [1] + [2] * (len(gene) - 1)
    return bases, labels


class Genes:
    """Batches of new sequences, as a pure function of the step: training can be resumed at any."""

    steps_per_epoch = 100

    def at(self, step: int, rows: int = 16) -> Batch:
        random = np.random.default_rng([7, step])
        drawn = [sequence(random) for _ in range(rows)]
        lengths = torch.tensor([len(bases) for bases, _ in drawn])
        words, tags = torch.zeros(2, rows, int(lengths.max()), dtype=torch.long)
        for row, (bases, labels) in enumerate(drawn):
            words[row, : len(bases)] = torch.tensor([BASES.index(base) for base in bases])
            tags[row, : len(bases)] = torch.tensor(labels)
        return Batch(tags, lengths, context=words)


genes, steps = Genes(), int(sys.argv[1]) if len(sys.argv) > 1 else 200
held_out = genes.at(10**6, rows=200)
torch.manual_seed(0)
sizes = {"embedding_size": 8, "hidden_size": 32, "num_layers": 2, "dropout": 0.0}
tagger = SequenceTagger(len(TAGS), len(BASES), constraints=TagConstraints.bio(TAGS), **sizes)
options = TrainingOptions(steps=steps, learning_rate=1e-2, clip_norm=5.0)
train(tagger, genes, lambda: [held_out], options, tempfile.mkdtemp(prefix="chainrule-"))

tagger.eval()
gold, found = (
    [[TAGS[tag] for tag in row[:length]] for row, length in zip(tags.tolist(), held_out.lengths.tolist(), strict=True)]
    for tags in (held_out.x, tagger.decode(held_out.context, held_out.lengths))
)
scores = entity_scores(gold, found)
print(f"{scores.f1:.1%} F1 of {scores.entities} genes in {len(gold)} new sequences")

row = int(held_out.lengths[:40].argmax())  # one of the longer ones, to look at
alone, length = held_out.context[row : row + 1], held_out.lengths[row : row + 1]
marks = {"O": ".", "B-gene": "[", "I-gene": "="}
print("bases     ", "".join(BASES[base] for base in alone[0, :length].tolist()))
for name, tags in (("genes", gold[row]), ("found", found[row])):
    print(f"{name:<10}", "".join(marks[tag] for tag in tags))
inside = tagger.marginals(alone, length)[0, :length, 1:].sum(1)  # p(the base is in a gene), in tenths
print("certainty ", "".join(str(min(int(10 * share), 9)) for share in inside.tolist()))
