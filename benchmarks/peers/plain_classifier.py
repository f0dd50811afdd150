"""A plain classifier of sentences: word embedding, BiLSTM, maximum over time, softmax.

    python plain_classifier.py train.tsv dev.tsv test.tsv [--hidden 128] [--dropout 0.5] [--seconds 180] [--seed 1]

A line each: the sentence, a tab, its label. Prints the share of test sentences labelled right by the weights of the
best dev accuracy.
"""

import collections
import random
import time
from pathlib import Path

import torch
from timed_training import arguments, fit
from torch import Tensor, nn
from torch.nn import functional as F

BATCH = 32
Row = tuple[list[str], str]


def read(path: str) -> list[Row]:
    """The words and the label of each line."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [(text.lower().split(), label) for text, _, label in (line.rpartition("\t") for line in lines)]


class Classifier(nn.Module):
    def __init__(self, words: int, labels: int, embedding: int, hidden: int, dropout: float):
        super().__init__()
        self.embedding = nn.Embedding(words, embedding, padding_idx=0)
        self.lstm = nn.LSTM(embedding, hidden, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(2 * hidden, labels)

    def forward(self, words: Tensor) -> Tensor:
        lengths = (words > 0).sum(1)
        x = self.dropout(self.embedding(words))
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, padding_value=-torch.inf, total_length=words.shape[1]
        )
        return self.output(self.dropout(y.amax(1)))


def main() -> None:
    parser = arguments(__doc__, "train", "dev", "test")
    parser.add_argument("--embedding", type=int, default=128)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--epochs", type=float, default=3, help="at most")
    parser.add_argument("--min-count", type=int, default=2)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    train, dev, test = (read(path) for path in (options.train, options.dev, options.test))
    counts = collections.Counter(word for words, _ in train for word in words)
    number = {w: i for i, w in enumerate((w for w, n in counts.items() if n >= options.min_count), 2)}
    label_number = {label: index for index, label in enumerate(sorted({label for _, label in train}))}

    def batch(rows: list[Row]) -> tuple[Tensor, Tensor]:
        """Words (B, T), 0 pads, 1 is unknown; labels (B,)."""
        words = [torch.tensor([number.get(word, 1) for word in words]) for words, _ in rows]
        labels = torch.tensor([label_number[label] for _, label in rows])
        return nn.utils.rnn.pad_sequence(words, batch_first=True), labels

    def accuracy(rows: list[Row]) -> float:
        right = 0
        for start in range(0, len(rows), 100):
            words, labels = batch(rows[start : start + 100])
            right += int((net(words).argmax(1) == labels).sum())
        return 100 * right / len(rows)

    net = Classifier(len(number) + 2, len(label_number), options.embedding, options.hidden, options.dropout)
    order: list[Row] = []
    read_rows = 0

    def batch_loss() -> Tensor:
        nonlocal order, read_rows
        if not order:
            order = random.sample(train, len(train))
        rows, order = order[:BATCH], order[BATCH:]
        read_rows += len(rows)
        words, labels = batch(rows)
        return F.cross_entropy(net(words), labels)

    began = time.monotonic()
    steps = fit(
        net, batch_loss, options.seconds, rate=options.rate, judge=lambda: -accuracy(dev),
        max_steps=options.epochs * -(-len(train) // BATCH),
    )  # fmt: skip
    seconds = time.monotonic() - began
    with torch.no_grad():
        print(
            f"{accuracy(test):.2f} % of {len(test)} sentences, {steps} steps, {read_rows} sentences in "
            f"{seconds:.1f} s, dev {accuracy(dev):.2f} %"
        )


if __name__ == "__main__":
    main()
