"""Train a text model with the library alone, score and sample, in a dozen lines.

python examples/library.py [SECONDS]
"""

import sys
import tempfile
from pydoc_data.topics import topics

import torch

from chainrule import RecurrentLM
from chainrule.data import CharVocabulary, StreamBatches, Tokens
from chainrule.training import TrainingOptions, evaluate, train

text = "\n".join(topics.values())  # of CPython's help()
vocabulary = CharVocabulary(text)
ids = vocabulary.encode(text)
cut = len(ids) * 9 // 10
train_tokens, valid_tokens = Tokens(ids[:cut]), Tokens(ids[cut:])

torch.manual_seed(0)
model = RecurrentLM(len(vocabulary), cell="lstm", hidden_size=256)
batches = StreamBatches(train_tokens, batch_size=32, chunk_length=64)
options = TrainingOptions(budget=float(sys.argv[1]) if len(sys.argv) > 1 else 30.0)
directory = tempfile.mkdtemp(prefix="chainrule-")
held_out = StreamBatches.evaluation
train(model, batches, lambda: held_out(valid_tokens, batch_size=8, chunk_length=256), options, directory)

held_out = evaluate(model, StreamBatches.evaluation(valid_tokens, batch_size=1, chunk_length=1024))
print(f"{held_out.bits_per_element:.3f} bits/character on {held_out.elements} held-out characters")

for line in ("The following example is not valid:\n", "noitpecxe na si ereht fI\n"):
    x = torch.from_numpy(vocabulary.encode(line))[None]  # (1, T)
    print(f"log p = {model.log_prob(x).item():8.2f} nats  {line!r}")

drawn = model.sample(1, length=200, generator=torch.Generator().manual_seed(1))
print(vocabulary.decode(drawn[0].tolist()))
