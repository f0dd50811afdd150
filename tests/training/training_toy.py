"""A small model and small data, so that tests of training rest on nothing but the contract."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from chainrule._base import AutoregressiveModel
from chainrule.heads import Categorical
from chainrule.models import TransformerLM
from chainrule.state import State
from chainrule.training import TrainingOptions

SYMBOLS = 7


class ToyModel(AutoregressiveModel):
    """A GRU language model with dropout and tied weights: things that resuming must get right."""

    def __init__(self, hidden_size: int = 8, dropout: float = 0.2, seed: int = 0):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embedding = nn.Embedding(SYMBOLS + 1, hidden_size)
            self.gru = nn.GRU(hidden_size, hidden_size, batch_first=True)
            self.output = nn.Linear(hidden_size, SYMBOLS + 1)
        self.output.weight = self.embedding.weight
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, context: Tensor | None = None, lengths: Tensor | None = None) -> Categorical:
        return self.unroll(x, self.initial_state(x.shape[0]))[0]

    def initial_state(self, batch_size: int, context: Tensor | None = None) -> State:
        return {"h": self.embedding.weight.new_zeros(batch_size, self.gru.hidden_size)}

    def step(self, x_prev: Tensor | None, state: State) -> tuple[Categorical, State]:
        x = state["h"].new_zeros(state["h"].shape[0], 1, dtype=torch.long)
        conditionals, state = self.unroll(x, state, x_prev)
        return Categorical(conditionals.logits[:, 0]), state

    def unroll(self, x: Tensor, state: State, x_prev: Tensor | None = None) -> tuple[Categorical, State]:
        first = torch.full_like(x[:, 0], SYMBOLS) if x_prev is None else x_prev
        inputs = self.dropout(self.embedding(torch.cat([first.unsqueeze(1), x[:, :-1]], 1)))
        h, last = self.gru(inputs, state["h"].unsqueeze(0))
        return Categorical(self.output(self.dropout(h))[..., :SYMBOLS]), {"h": last[0]}


def of_kind(kind: str, seed: int = 0) -> tuple[AutoregressiveModel, TrainingOptions]:
    """A model without dropout and options for it; "muon" has hidden matrices."""
    if kind != "muon":
        return ToyModel(dropout=0.0, seed=seed), options()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TransformerLM(SYMBOLS, model_size=8, num_layers=2, num_heads=2).double()
    return model, options(optimiser="muon")


@dataclass(frozen=True)
class ToyBatch:
    x: Tensor
    lengths: Tensor | None = None
    previous: Tensor | None = None
    context: Tensor | None = None
    whole: bool = False


class ToyStream:
    """A noisy staircase of symbols, read as tracks; a pure function of the step."""

    def __init__(self, batch_size: int = 4, length: int = 5, shard: tuple[int, int] = (0, 1), size: int = 240):
        generator = torch.Generator().manual_seed(1)
        noise = torch.rand(size, generator=generator) < 0.2
        tokens = (torch.arange(size) + torch.randint(SYMBOLS, (size,), generator=generator) * noise) % SYMBOLS
        self.tracks = tokens.view(batch_size, -1)[shard[0] :: shard[1]]
        self.length = length
        self.steps_per_epoch = self.tracks.shape[1] // length

    def at(self, step: int) -> ToyBatch:
        begin = step % self.steps_per_epoch * self.length
        previous = self.tracks[:, begin - 1] if begin else None
        return ToyBatch(self.tracks[:, begin : begin + self.length], previous=previous)


class ToyLines:
    """The same symbols as rows of unequal length, padded with a symbol that is none."""

    def __init__(self, batch_size: int = 4, shard: tuple[int, int] = (0, 1)):
        self.stream = ToyStream(batch_size, shard=shard)
        self.rows = torch.arange(batch_size)[shard[0] :: shard[1]]
        self.steps_per_epoch = self.stream.steps_per_epoch

    def at(self, step: int) -> ToyBatch:
        x = self.stream.at(step).x.clone()
        lengths = (self.rows + step) % self.stream.length + 1
        x[torch.arange(x.shape[1]) >= lengths.unsqueeze(1)] = 99
        return ToyBatch(x, lengths)


def held_out() -> Iterator[ToyBatch]:
    """Two chunks of two rows and a remainder."""
    stream = ToyStream(batch_size=2, length=50)
    yield stream.at(0)
    yield stream.at(1)
    yield ToyBatch(stream.tracks[:1, 100:113])


def options(**changes: object) -> TrainingOptions:
    """Sixteen steps over an epoch's end, in the precision and on the device that promise the same bits."""
    settings: dict[str, object] = {"steps": 16, "validate_every": 4, "learning_rate": 3e-3}
    settings |= {"precision": "float32", "device": "cpu"}
    if changes.keys() & {"epochs", "budget"}:
        del settings["steps"], settings["validate_every"]
    return TrainingOptions(**(settings | changes))


def remains(directory: Path) -> dict[str, bytes]:
    """The files that two runs of the same steps must agree on, byte for byte, and the tensors of the checkpoint."""
    from safetensors.torch import load_file

    tensors = load_file(directory / "checkpoint.safetensors")
    files = {name: (directory / name).read_bytes() for name in ("metrics.jsonl", "model.safetensors")}
    return files | {name: tensor.reshape(-1).view(torch.uint8).numpy().tobytes() for name, tensor in tensors.items()}
