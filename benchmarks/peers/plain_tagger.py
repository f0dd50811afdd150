"""A plain tagger: word embedding, characters by a small CNN, BiLSTM, softmax.

    python plain_tagger.py train.conllu dev.conllu test.conllu [--seconds 180] [--seed 1]

CoNLL-U (.gz too), universal tags. Prints the share of test words tagged right by the last weights.
"""

import collections
import gzip
import random
import time

import torch
from timed_training import arguments, fit
from torch import Tensor, nn
from torch.nn import functional as F

BATCH, CHARACTERS = 32, 20
Sentence = list[tuple[str, str]]


def read(path: str) -> list[Sentence]:
    """The words and tags of each sentence."""
    sentences: list[Sentence] = [[]]
    with gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8") as file:
        for line in file:
            cells = line.rstrip("\n").split("\t")
            if cells == [""]:
                sentences.append([])
            elif cells[0].isdigit():
                sentences[-1].append((cells[1], cells[3]))
    return [sentence for sentence in sentences if sentence]


class Tagger(nn.Module):
    def __init__(self, words: int, characters: int, tags: int):
        super().__init__()
        self.words = nn.Embedding(words, 100, padding_idx=0)
        self.characters = nn.Embedding(characters, 30, padding_idx=0)
        self.convolution = nn.Conv1d(30, 50, 3, padding=1)
        self.lstm = nn.LSTM(150, 200, batch_first=True, bidirectional=True)
        self.dropout = nn.Dropout(0.4)
        self.output = nn.Linear(400, tags)

    def forward(self, words: Tensor, characters: Tensor) -> Tensor:
        """(B, T) and (B, T, C) to the scores of tags, (B, T, tags)."""
        B, T, C = characters.shape
        spelled = self.convolution(self.characters(characters.view(B * T, C)).transpose(1, 2)).amax(2).view(B, T, -1)
        x = self.dropout(torch.cat([self.words(words), spelled], 2))
        lengths = (words > 0).sum(1)
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=T)
        return self.output(self.dropout(y))


def main() -> None:
    options = arguments(__doc__, "train", "dev", "test").parse_args()
    torch.manual_seed(options.seed)
    random.seed(options.seed)
    train, test = read(options.train), read(options.test)
    counts = collections.Counter(word.lower() for sentence in train for word, _ in sentence)
    word_number = {word: index for index, word in enumerate((w for w, n in counts.items() if n > 1), 2)}
    character_number = {c: i for i, c in enumerate(sorted({c for s in train for w, _ in s for c in w}), 2)}
    tag_number = {tag: index for index, tag in enumerate(sorted({tag for s in train for _, tag in s}))}

    def batch(sentences: list[Sentence]) -> tuple[Tensor, Tensor, Tensor]:
        """Words (B, T), their characters (B, T, C), tags (B, T); 0 pads, 1 is unknown, -1 no tag."""
        T = max(map(len, sentences))
        C = min(CHARACTERS, max(len(word) for sentence in sentences for word, _ in sentence))
        words = torch.zeros(len(sentences), T, dtype=torch.long)
        characters = torch.zeros(len(sentences), T, C, dtype=torch.long)
        tags = torch.full((len(sentences), T), -1)
        for row, sentence in enumerate(sentences):
            for column, (word, tag) in enumerate(sentence):
                words[row, column] = word_number.get(word.lower(), 1)
                tags[row, column] = tag_number.get(tag, -1)
                for place, character in enumerate(word[:C]):
                    characters[row, column, place] = character_number.get(character, 1)
        return words, characters, tags

    net = Tagger(len(word_number) + 2, len(character_number) + 2, len(tag_number))
    order: list[list[int]] = []
    read_words = 0

    def batch_loss() -> Tensor:
        nonlocal order, read_words
        if not order:
            by_length = sorted(range(len(train)), key=lambda index: len(train[index]) + random.random())
            order = [by_length[start : start + BATCH] for start in range(0, len(train), BATCH)]
            random.shuffle(order)
        words, characters, tags = batch([train[index] for index in order.pop()])
        read_words += int((tags >= 0).sum())
        return F.cross_entropy(net(words, characters).flatten(0, 1), tags.flatten(), ignore_index=-1)

    began = time.monotonic()
    steps = fit(net, batch_loss, options.seconds, rate=3e-3, clip=5.0)
    seconds, right, total = time.monotonic() - began, 0, sum(map(len, test))
    with torch.no_grad():
        for start in range(0, len(test), 64):
            words, characters, tags = batch(test[start : start + 64])
            right += int((net(words, characters).argmax(2) == tags)[tags >= 0].sum())
    print(f"{100 * right / total:.2f} % of {total} words, {steps} steps, {read_words} words in {seconds:.1f} s")


if __name__ == "__main__":
    main()
