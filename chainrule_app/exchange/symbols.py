"""The vocabulary of a model from elsewhere, and which row of its weights belongs to which of our symbols."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from chainrule.data import CharVocabulary, Vocabulary, WordVocabulary, read_tokenizer
from chainrule.files import parse_json
from chainrule.option_error import OptionError
from chainrule_app.exchange.causal_lm import IMPOSSIBLE
from chainrule_app.readers.sources import check_file

_MOST_BYTES = 1 << 26
UNKNOWN, EOS = Vocabulary.UNKNOWN, Vocabulary.EOS
_STARTS = ("<|endoftext|>", "<s>", "<bos>", "\n", EOS)
_SPECIAL = re.compile(r"<[^<>\s]+>|\[[A-Z]+\]")  # <pad>, [UNK]
_PICKLES = (".pkl", ".pickle")


@dataclass(frozen=True)
class Symbols:
    """A vocabulary of ours, and its place in another."""

    vocabulary: Vocabulary  # of the run
    rows: list[int | None]  # for each of its symbols the number it has elsewhere; `None` for one that is unknown there
    start_name: str  # the symbol that the first one follows
    start: int  # its number elsewhere

    def check(self, size: int, path: Path) -> None:
        """Raise ValueError unless every number is one of a table of `size` rows."""
        largest = max([self.start, *(row for row in self.rows if row is not None)])
        if largest >= size:
            raise ValueError(
                f"{path}: the model has {size:,} symbols, but the vocabulary numbers them up to {largest:,}: "
                "it belongs to another model"
            )

    def inputs(self, table: Tensor) -> Tensor:
        """Return the rows of an embedding (V′, E) in our order, the start symbol last: (V + 1, E)."""
        return torch.cat([self._ours(table, 0.0), table[self.start : self.start + 1]])

    def outputs(self, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
        """Weights (V, D) and biases (V,) of the scores, in our order; what is unknown there is never predicted."""
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        return self._ours(weight, 0.0), self._ours(bias, IMPOSSIBLE)

    def _ours(self, table: Tensor, absent: float) -> Tensor:
        present = torch.tensor([row is not None for row in self.rows])
        embedding = table[torch.tensor([0 if row is None else row for row in self.rows])]
        embedding[~present] = absent
        return embedding


def read_symbols(path: Path | None, *, start: str | None) -> Symbols:
    """Read a vocabulary: a tokenizer.json, a run's, JSON that lists or numbers symbols, or a text with each once."""
    if path is None:
        raise OptionError(
            "vocabulary",
            "expected the file of the model's symbols, got none: JSON with the symbols in order, a text "
            "with every character once, or a tokenizer.json",
        )
    if check_file(path).stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path}: expected at most {_MOST_BYTES >> 20} MiB, got more: this is no vocabulary")
    if path.suffix in _PICKLES:
        raise ValueError(
            f"{path}: a pickle may hold code and is never opened: write its symbols as JSON, for nanoGPT "
            "json.dump(pickle.load(open('meta.pkl', 'rb'))['stoi'], open('vocabulary.json', 'w'))"
        )
    raw = path.read_bytes()
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path}: expected JSON or UTF-8 text, got something else") from None
    if path.suffix != ".json":
        return _of_tokens(path, _characters(path, text), start)
    try:
        content = parse_json(raw)
    except ValueError as error:
        raise ValueError(f"{path}: expected JSON, got something else ({error})") from None
    if isinstance(content, dict) and "model" in content:
        read = read_tokenizer(path)
        names = dict(zip(read.vocabulary.pieces, read.numbers, strict=True))
        return Symbols(read.vocabulary, [*read.numbers], *_start(path, names | {"\n": names["Ċ"]}, start))
    if isinstance(content, dict) and {"format", "level"} <= content.keys():
        own = Vocabulary.from_json(content)
        names = {own.decode([number]) if number != own.unknown else UNKNOWN: number for number in range(len(own))}
        return Symbols(own, list(range(len(own))), *_start(path, names, start))
    return _of_tokens(path, _numbered(path, content), start)


def _characters(path: Path, text: str) -> dict[str, int]:
    if len(text) > 1 and text.endswith("\n") and "\n" in text[:-1]:  # an editor's last line end
        text = text[:-1]
    if len(set(text)) != len(text):
        again = next(character for index, character in enumerate(text) if character in text[:index])
        raise ValueError(f"{path}: expected every character once, in the model's order, got {again!r} twice")
    return {character: number for number, character in enumerate(text)}


def _numbered(path: Path, content: Any) -> dict[str, int]:
    """Return the number of each symbol in JSON: a list, {"a": 0}, {"0": "a"}, or one of these under a usual name."""
    for name in ("stoi", "token_to_idx", "vocab", "itos", "idx_to_token", "chars"):
        if isinstance(content, dict) and isinstance(content.get(name), list | dict):
            content = content[name]
            break
    if isinstance(content, list):
        content = dict(enumerate(content))
    pairs = list(content.items()) if isinstance(content, dict) else []
    if pairs and all(isinstance(value, str) for _, value in pairs):
        pairs = [(value, int(key)) for key, value in pairs if str(key).isdecimal()]
    numbers = {key: value for key, value in pairs if isinstance(key, str) and type(value) is int and value >= 0}
    if not numbers or len(numbers) != len(pairs) or len(set(numbers.values())) != len(numbers):
        raise ValueError(f'{path}: expected symbols in order, ["a", "b"], or with a number each, {{"a": 0, "b": 1}}')
    return numbers


def _of_tokens(path: Path, numbers: dict[str, int], start: str | None) -> Symbols:
    """Characters if every symbol but special ones is a character, else words."""
    characters = [token for token in numbers if not _SPECIAL.fullmatch(token)]
    if characters and all(len(token) == 1 for token in characters):
        vocabulary = CharVocabulary("".join(characters))
        rows = [numbers.get(UNKNOWN), *map(numbers.get, vocabulary.characters)]
        return Symbols(vocabulary, rows, *_start(path, numbers, start))
    plain = [token for token in numbers if token not in {UNKNOWN, EOS, *_STARTS} - {"\n"}]
    if not plain:
        raise ValueError(f"{path}: expected symbols, got none")
    ordered = sorted((token for token in plain if token.split() == [token]), key=numbers.__getitem__)
    words = WordVocabulary(ordered)
    rows = [numbers.get(UNKNOWN), numbers.get(EOS, numbers.get("\n")), *map(numbers.get, words.words)]
    return Symbols(words, rows, *_start(path, numbers, start))


def _start(path: Path, numbers: dict[str, int], start: str | None) -> tuple[str, int]:
    names = _STARTS if start is None else (start,)
    name = next((name for name in names if name in numbers), None)
    if name is None:
        wanted = "one of " + ", ".join(map(json.dumps, _STARTS)) if start is None else json.dumps(start)
        raise OptionError("start", f"{path.name} has no symbol {wanted}", "name the one that the first symbol follows")
    return name, numbers[name]
