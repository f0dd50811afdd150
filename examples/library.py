"""Train a text model with the library alone, score and sample, in a dozen lines.

python examples/library.py [SECONDS]
"""

import sys
import tempfile

import torch

from chainrule import RecurrentLM
from chainrule.data import StreamBatches, stream_evaluation
from chainrule.training import TrainingOptions, evaluate, train
from chainrule_app import prepare_corpus

directory = tempfile.mkdtemp(prefix="chainrule-")
corpus = prepare_corpus(None, f"{directory}/corpus")  # None: the text built into Python; else the path of a text file
torch.manual_seed(0)
model = RecurrentLM(len(corpus.vocabulary), cell="lstm", hidden_size=256)
batches = StreamBatches(corpus.train, batch_size=32, chunk_length=64)
options = TrainingOptions(budget=float(sys.argv[1]) if len(sys.argv) > 1 else 30.0)
train(model, batches, lambda: stream_evaluation(corpus.valid, batch_size=8, chunk_length=256), options, directory)

held_out = evaluate(model, stream_evaluation(corpus.valid, batch_size=1, chunk_length=1024))
print(f"{held_out.bits_per_element:.3f} bits/character on {held_out.elements} held-out characters")

for line in ("The following example is not valid:\n", "noitpecxe na si ereht fI\n"):
    x = torch.from_numpy(corpus.vocabulary.encode(line))[None]  # (1, T)
    print(f"log p = {model.log_prob(x).item():8.2f} nats  {line!r}")

drawn = model.sample(1, length=200, generator=torch.Generator().manual_seed(1))
print(corpus.vocabulary.decode(drawn[0].tolist()))
