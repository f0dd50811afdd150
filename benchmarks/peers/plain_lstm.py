"""A plain character model: embedding, torch.nn.LSTM, softmax; the state is carried through the text.

    python plain_lstm.py TEXT [--hidden 256] [--test-fraction 0.1] [--seconds 180] [--seed 1]

Trains on the first part of TEXT, tests on the last: nats a character.
"""

import time
from pathlib import Path

import torch
from timed_training import arguments, fit
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, CHUNK = 32, 64


class CharacterLM(nn.Module):
    def __init__(self, symbols: int, hidden: int):
        super().__init__()
        self.embedding = nn.Embedding(symbols, 64)
        self.lstm = nn.LSTM(64, hidden, batch_first=True)
        self.dropout = nn.Dropout(0.2)
        self.output = nn.Linear(hidden, symbols)

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        y, state = self.lstm(self.embedding(x), state)
        return self.output(self.dropout(y)), state


def main() -> None:
    parser = arguments(__doc__, "text")
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--test-fraction", type=float, default=0.1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    text = Path(options.text).read_text(encoding="utf-8")
    number = {symbol: index for index, symbol in enumerate(sorted(set(text)))}
    data = torch.tensor([number[symbol] for symbol in text])
    cut = int((1 - options.test_fraction) * len(text))
    length = cut // BATCH
    train, test = data[: length * BATCH].view(BATCH, length), data[cut:]
    net = CharacterLM(len(number), options.hidden)
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

    began = time.monotonic()
    steps = fit(net, batch_loss, options.seconds, rate=5e-3)
    seconds = time.monotonic() - began
    with torch.no_grad():
        scores, _ = net(test[None, :-1])
        nats = F.cross_entropy(scores[0], test[1:]).item()
    print(
        f"{nats:.4f} nats/char, {steps} steps, {steps * BATCH * CHUNK} characters in {seconds:.1f} s, "
        f"{options.hidden} units"
    )


if __name__ == "__main__":
    main()
