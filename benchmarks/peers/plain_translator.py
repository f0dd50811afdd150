"""A plain translator: BiGRU encoder, GRU decoder with multiplicative attention (Luong et al. 2015), greedy search.

    python plain_translator.py TRAIN VALID TEST [--hidden 256] [--dropout 0.4] [--seconds 180] [--seed 1]

Each of the three is two files of sentences, a line each, words between blanks, .gz too: SOURCE,TARGET. Prints
sacrebleu's BLEU of the test sentences, which are tokenised already (tok:none), by the weights of the best validation
likelihood.
"""

import collections
import gzip
import random
import time

import sacrebleu
import torch
from timed_training import arguments, fit
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, LONGEST = 64, 60
PAD, UNKNOWN, BEGIN, END = range(4)
SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
Pair = tuple[list[int], list[int]]


def read(files: str) -> list[tuple[list[str], list[str]]]:
    """The words of each pair."""
    sides = []
    for path in files.split(","):
        with gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8") as file:
            sides.append([line.split() for line in file])
    return list(zip(*sides, strict=True))


def padded(rows: list[list[int]]) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)


class Translator(nn.Module):
    def __init__(self, source: int, target: int, embedding: int, hidden: int, dropout: float):
        super().__init__()
        self.source = nn.Embedding(source, embedding, padding_idx=PAD)
        self.target = nn.Embedding(target, embedding, padding_idx=PAD)
        self.encoder = nn.GRU(embedding, hidden, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(embedding, hidden, batch_first=True)
        self.bridge = nn.Linear(2 * hidden, hidden)
        self.keys = nn.Linear(2 * hidden, hidden, bias=False)
        self.attentive = nn.Linear(3 * hidden, embedding)
        self.output = nn.Linear(embedding, target)
        self.output.weight = self.target.weight
        self.dropout = nn.Dropout(dropout)
        for table in (self.source, self.target):
            nn.init.normal_(table.weight, std=embedding**-0.5)

    def encode(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """States of the source (B, S, 2M), and the decoder's first (1, B, M)."""
        packed = nn.utils.rnn.pack_padded_sequence(
            self.dropout(self.source(words)), (words > PAD).sum(1), batch_first=True, enforce_sorted=False
        )
        y, last = self.encoder(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=words.shape[1])
        return states, self.bridge(torch.cat([last[0], last[1]], 1)).tanh()[None]

    def decode(self, words: Tensor, states: Tensor, h: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the words after each of `words` (B, T, V), and the decoder's last state."""
        y, h = self.decoder(self.dropout(self.target(words)), h)
        scores = y @ self.keys(states).transpose(1, 2)
        weights = scores.masked_fill(source[:, None] == PAD, -torch.inf).softmax(2)
        features = self.attentive(torch.cat([y, weights @ states], 2)).tanh()
        return self.output(self.dropout(features)), h


def main() -> None:
    parser = arguments(__doc__, "train", "valid", "test")
    parser.add_argument("--embedding", type=int, default=256)
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.4)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--looks", type=int, default=4, help="at the validation pairs")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    train, valid, test = (read(files) for files in (options.train, options.valid, options.test))
    vocabularies = []
    for side in (0, 1):
        counts = collections.Counter(word for pair in train for word in pair[side])
        vocabularies.append(SPECIAL + [word for word, n in counts.items() if n > 1])
    numbers = [{word: index for index, word in enumerate(words)} for words in vocabularies]

    def encoded(pair: tuple[list[str], list[str]]) -> Pair:
        source, target = ([numbers[side].get(word, UNKNOWN) for word in pair[side]] for side in (0, 1))
        return [*source, END], [BEGIN, *target, END]

    def loss(pairs: list[Pair], smoothing: float) -> Tensor:
        source, target = padded([x for x, _ in pairs]), padded([y for _, y in pairs])
        scores, _ = net.decode(target[:, :-1], *net.encode(source), source)
        known = target[:, 1:] != PAD
        return F.cross_entropy(scores[known], target[:, 1:][known], label_smoothing=smoothing)

    def translate(sentences: list[list[int]]) -> list[str]:
        source = padded(sentences)
        states, h = net.encode(source)
        words, going = torch.full((len(sentences), 1), BEGIN), torch.ones(len(sentences), dtype=torch.bool)
        while going.any() and words.shape[1] <= LONGEST:
            scores, h = net.decode(words[:, -1:], states, h, source)
            scores[..., [PAD, UNKNOWN, BEGIN]] = -torch.inf
            words = torch.cat([words, scores.argmax(2)], 1)
            going &= words[:, -1] != END
        rows = [row[1 : row.index(END) if END in row else None] for row in words.tolist()]
        return [" ".join(vocabularies[1][word] for word in row) for row in rows]

    sizes = [len(words) for words in vocabularies]
    net = Translator(sizes[0], sizes[1], options.embedding, options.hidden, options.dropout)
    pairs, held_out = [encoded(pair) for pair in train], [encoded(pair) for pair in valid]
    order: list[list[Pair]] = []
    words = 0

    def batch_loss() -> Tensor:
        nonlocal order, words
        if not order:
            by_length = sorted(pairs, key=lambda pair: len(pair[1]) + random.random())
            order = [by_length[start : start + BATCH] for start in range(0, len(pairs), BATCH)]
            random.shuffle(order)
        batch = order.pop()
        words += sum(len(target) - 1 for _, target in batch)
        return loss(batch, 0.1)

    def judge() -> float:
        return sum(loss(held_out[start : start + 256], 0.0).item() for start in range(0, len(held_out), 256))

    began = time.monotonic()
    steps = fit(net, batch_loss, options.seconds, rate=options.rate, judge=judge, looks=options.looks)
    seconds = time.monotonic() - began
    figures = []
    with torch.no_grad():
        for part in (test, valid):
            found = [line for start in range(0, len(part), 100)
                     for line in translate([encoded(pair)[0] for pair in part[start : start + 100]])]  # fmt: skip
            references = [" ".join(target) for _, target in part]
            figures.append(sacrebleu.corpus_bleu(found, [references], tokenize="none", force=True).score)
    print(f"{figures[0]:.2f} BLEU, {steps} steps, {words} words in {seconds:.1f} s, valid {figures[1]:.2f}")


if __name__ == "__main__":
    main()
