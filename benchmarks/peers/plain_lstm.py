"""A plain character model: embedding, torch.nn.LSTM, softmax; the state is carried through the text.

    python plain_lstm.py TEXT [--hidden 256] [--dropout 0.2] [--test-fraction 0.1] [--seconds 180] [--seed 1]
    python plain_lstm.py TEXT --validation-fraction 0.1 ...

Trains on the first part of TEXT, tests on the last: nats a character. For a text so short that the model overfits it,
the end of the training part chooses the weights.
"""

import time
from functools import partial
from pathlib import Path

import torch
from timed_training import arguments, fit
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, CHUNK = 32, 64


class CharacterLM(nn.Module):
    def __init__(self, symbols: int, hidden: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(symbols, 64)
        self.lstm = nn.LSTM(64, hidden, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(hidden, symbols)

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        y, state = self.lstm(self.embedding(x), state)
        return self.output(self.dropout(y)), state


def main() -> None:
    parser = arguments(__doc__, "text")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.2)
    parser.add_argument("--test-fraction", type=float, default=0.1)
    parser.add_argument("--validation-fraction", type=float, default=0.0, help="of the training part")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    text = Path(options.text).read_text(encoding="utf-8")
    number = {symbol: index for index, symbol in enumerate(sorted(set(text)))}
    data = torch.tensor([number[symbol] for symbol in text])
    cut = int((1 - options.test_fraction) * len(text))
    held_out = int(options.validation_fraction * cut)
    length = (cut - held_out) // BATCH
    train, test = data[: length * BATCH].view(BATCH, length), data[cut:]
    net = CharacterLM(len(number), options.hidden, options.dropout)
    state: tuple[Tensor, Tensor] | None = None
    place = 0

    def batch_loss() -> Tensor:
        nonlocal state, place
        if place + CHUNK + 1 > length:
            state, place = None, 0
        scores, new = net(train[:, place : place + CHUNK], state)
        assert new is not None
        state = (new[0].detach(), new[1].detach())
        place += CHUNK
        return F.cross_entropy(scores.flatten(0, 1), train[:, place - CHUNK + 1 : place + 1].flatten())

    def nats_of(part: Tensor) -> float:
        scores, _ = net(part[None, :-1])
        return F.cross_entropy(scores[0], part[1:]).item()

    began = time.monotonic()
    judge = partial(nats_of, data[cut - held_out : cut]) if held_out else None
    steps = fit(net, batch_loss, options.seconds, rate=5e-3, judge=judge)
    seconds = time.monotonic() - began
    with torch.no_grad():
        nats = nats_of(test)
    print(
        f"{nats:.4f} nats/char, {steps} steps, {steps * BATCH * CHUNK} characters in {seconds:.1f} s, "
        f"{options.hidden} units"
    )


if __name__ == "__main__":
    main()
