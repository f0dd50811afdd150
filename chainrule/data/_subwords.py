"""Pieces of words as symbols: byte-level byte-pair encoding, fitted and applied by the `tokenizers` library."""

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from itertools import accumulate, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from chainrule.data._characters import visible
from chainrule.data._vocabulary import EOS, Beginning, Ids, Vocabulary, cut_before_space
from chainrule.files import read_json

if TYPE_CHECKING:
    from tokenizers import Tokenizer


DEFAULT_SIZE = 4096
_FIT_CHARACTERS, _FIT_WORDS = 50_000_000, 300_000
_MOST_KNOWN = 200_000
# A unit is white space and what follows it up to the next white space. Byte-level BPE never merges across the beginning
# of a run of white space, so units can be encoded one by one. (U+001C to U+001F are space to Python alone.)
_UNIT = r"[^\S\x1c-\x1f]*[\S\x1c-\x1f]+|[^\S\x1c-\x1f]+"
_LONGEST_OPEN = 256  # bytes of a last unit that may go on
# What follows a piece decides where the library cuts before it: nothing, a letter, a digit, a mark or white space.
_FOLLOWING = ("", "a", "0", ".", " ")
_LINE_UNIT = r"\n|[^\S\n\x1c-\x1f]*[\S\x1c-\x1f]+|[^\S\n\x1c-\x1f]+"


@dataclass(frozen=True)
class AddedToken:
    """A text that is one symbol wherever it occurs, such as ``<|endoftext|>``; see `tokenizers.AddedToken`."""

    content: str
    single_word: bool = False  # only between characters that belong to no word
    normalized: bool = False  # found after the others

    def __post_init__(self) -> None:
        if not self.content:
            raise ValueError("added: expected a text, got an empty one")
        first, *others = re.findall(_UNIT, self.content)
        # A text is cut, and encoded in units, before white space: a token must be inside one unit.
        if others or (self.single_word and first.lstrip() != first):
            raise ValueError(
                f"added: expected a text without white space after its first word, got {self.content!r:.80}"
            )


class BPEVocabulary(Vocabulary):
    r"""The 256 bytes, then one symbol for each merge of two symbols, in order, then added ones, then `<eos>` of lines.

    Byte-pair encoding (Sennrich et al. 2016) over the bytes of UTF-8 (Radford et al. 2019): nothing is unknown,
    nothing is normalised, `decode(encode(text)) == text`. Merges stay inside words, numbers, or runs of punctuation
    or white space. Added tokens, such as those of a tokenizer.json, are found in the text before. Needs
    ``pip install tokenizers``.

    Args:
        merges: the pairs of symbols merged, in order, in the printable form of bytes that `tokenizers` uses.
        eos: whether the newline ends a sequence (it is then `<eos>`, and in no other symbol).
        added: texts that are one symbol each, in order.

    Attributes:
        pieces: the symbols except `<eos>`, in the same form; an added token is its text.

    Example:
        >>> vocabulary = BPEVocabulary([("t", "h"), ("th", "e")])
        >>> [vocabulary.token(symbol) for symbol in vocabulary.encode("then")]
        ['the', 'n']
    """

    level: ClassVar[str] = "bpe"
    _FIELDS: ClassVar[dict[str, Any]] = {"merges": list[str], "eos": bool, "added": list[AddedToken]}
    cuts_at_spaces: ClassVar[bool] = True
    unknown: None = None

    def __init__(
        self, merges: Iterable[tuple[str, str]], *, eos: bool = False, added: Iterable[AddedToken] = ()
    ) -> None:
        self.merges, self.added = [(left, right) for left, right in merges], list(added)
        ids = {character: byte for byte, character in enumerate(_byte_characters())}
        for left, right in self.merges:
            if left not in ids or right not in ids:
                raise ValueError(f"merges: expected pairs of earlier symbols, got {left!r} {right!r}")
            ids.setdefault(left + right, len(ids))
        byte_of = dict(zip(_byte_characters(), range(256), strict=True))
        self._bytes = [bytes(map(byte_of.__getitem__, piece)) for piece in ids]
        for token in self.added:
            text = token.content.encode()
            if eos and b"\n" in text:
                raise ValueError(f"added: {token.content!r:.80} holds a line end, which ends a sequence: read a stream")
            if token.content not in ids:
                ids[token.content] = len(ids)
                self._bytes.append(text)
            elif self._bytes[ids[token.content]] != text:
                raise ValueError(f"added: {token.content!r:.80} is also the printable form of other bytes")
        self.pieces = list(ids)
        self._tokenizer = _tokenizer(ids, self.merges, self.added)
        self.eos = len(ids) if eos else None
        if eos:
            self._bytes.append(b"\n")
        self._line_ends = np.array([piece.count(b"\n") for piece in self._bytes], dtype=np.int64)
        self._units = re.compile(_LINE_UNIT if eos else _UNIT)
        self._known: dict[str, bytes]  # units met before, and their symbols as int32: most text repeats itself
        self._forget()

    @classmethod
    def fit(
        cls, chunks: Iterable[str], *, eos: bool = False, min_count: int = 1, vocabulary_size: int | None = None
    ) -> Self:
        """Merge the most frequent pair until `vocabulary_size` symbols (4096 unless told) or pairs seen once are
        reached.

        Only the first 50 million characters are looked at, and fewer once they hold 300,000 different words, to keep
        memory and time bounded.
        """
        size = DEFAULT_SIZE if vocabulary_size is None else vocabulary_size
        smallest = 257 if eos else 256
        if size < smallest:
            raise ValueError(f"vocabulary_size: expected at least {smallest} at level bpe (the bytes), got {size}")
        trainer = _tokenizers().trainers.BpeTrainer(
            vocab_size=size - 1 if eos else size,
            min_frequency=max(min_count, 2),
            initial_alphabet=list(_byte_characters()),
            show_progress=False,
        )
        tokenizer = _tokenizer(dict(zip(_byte_characters(), range(256), strict=True)), [], [])
        texts = (_scalars([text])[0] for text in _beginning(cut_before_space(_slices(chunks))))
        tokenizer.train_from_iterator((text.split("\n") for text in texts) if eos else texts, trainer)
        merges = json.loads(tokenizer.to_str())["model"]["merges"]
        return cls([(left, right) for left, right in merges], eos=eos)

    def __len__(self) -> int:
        return len(self._bytes)

    def encode(self, text: str) -> Ids:
        units = self._units.findall(text)
        cache = self._known
        unknown = [unit for unit in set(units) if unit not in cache]
        for unit, encoding in zip(unknown, self._tokenizer.encode_batch_fast(_scalars(unknown)), strict=True):
            cache[unit] = np.array(encoding.ids, dtype=np.int32).tobytes()
        ids = np.frombuffer(b"".join(map(cache.__getitem__, units)), dtype=np.int32).astype(np.int64)
        if len(cache) > _MOST_KNOWN:
            self._forget()
        return ids

    def begin(self, text: str) -> Beginning:
        """Return the symbols of an unfinished text.

        `covers` are the sequences of symbols with which the encodings of texts that begin so continue `ids`, one for
        each that some such text has. They are looked for in the last unit, white space and the word after it: what
        follows changes no symbol before. A unit of more than 256 bytes is taken as whole, as is a line that ended.

        >>> vocabulary = BPEVocabulary([("t", "h"), ("th", "e")])
        >>> beginning = vocabulary.begin("a th")
        >>> [[vocabulary.token(symbol) for symbol in cover] for cover in beginning.covers]
        [['␣', 'th'], ['␣', 'the']]
        """
        units = _scalars(self._units.findall(text))
        prefix = units[-1].encode() if units else b""
        if not 0 < len(prefix) <= _LONGEST_OPEN or (self.eos is not None and prefix == b"\n"):
            return super().begin(text)
        return Beginning(self.encode("".join(units[:-1])), units[-1], self._covers(prefix))

    def _covers(self, prefix: bytes) -> list[tuple[int, ...]]:
        """Return the encodings of units that begin with `prefix`, each up to the symbol that reaches its end."""
        pieces = sorted(piece for piece in self._bytes if self.eos is None or b"\n" not in piece)
        texts = set[str]()
        for start in range(max(0, len(prefix) - max(map(len, pieces))), len(prefix)):
            rest = prefix[start:]
            for index in range(bisect_left(pieces, rest), len(pieces)):
                if not pieces[index].startswith(rest):
                    break
                texts |= _completed(prefix[:start] + pieces[index])
        encodings = set[tuple[int, ...]]()
        for encoding in self._tokenizer.encode_batch_fast([text + more for text in texts for more in _FOLLOWING]):
            ends = accumulate(len(self._bytes[symbol]) for symbol in encoding.ids)
            stop = next(index for index, end in enumerate(ends, 1) if end >= len(prefix))
            encodings.add(tuple(encoding.ids[:stop]))
        return sorted(encodings)

    def encode_with_lines(self, text: str) -> tuple[Ids, Ids]:
        ids = self.encode(text)
        ends = self._line_ends[ids]
        return ids, ends.cumsum() - ends

    def _forget(self) -> None:
        self._known = {} if self.eos is None else {"\n": np.int32(self.eos).tobytes()}

    def decode(self, ids: npt.ArrayLike) -> str:
        return b"".join([self._bytes[symbol] for symbol in self.check_ids(ids).tolist()]).decode("utf-8", "replace")

    def token(self, symbol: int) -> str:
        self.check_ids(symbol)
        if symbol == self.eos:
            return EOS
        return visible(self._bytes[symbol].decode("utf-8", "backslashreplace"))

    def to_json(self) -> dict[str, Any]:
        merges = [f"{left} {right}" for left, right in self.merges]
        record = {"format": 1, "level": self.level, "merges": merges, "eos": self.eos is not None}
        return record | ({"added": [asdict(token) for token in self.added]} if self.added else {})

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        return super().from_json({"added": []} | content)

    @classmethod
    def _from_fields(cls, *, level: str, **fields: Any) -> Self:
        merges = []
        for merge in fields["merges"]:
            left, _, right = merge.partition(" ")
            if not (left and right):
                raise ValueError(f"merges: expected two symbols, got {merge!r:.80}")
            merges.append((left, right))
        return cls(merges, eos=fields["eos"], added=fields["added"])


def _tokenizers() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise ValueError(
            "level bpe needs the package tokenizers, which is not installed: pip install tokenizers, "
            "or choose level char, byte or word"
        ) from None
    return tokenizers


def _tokenizer(pieces: dict[str, int], merges: list[tuple[str, str]], added: list[AddedToken]) -> "Tokenizer":
    tokenizers = _tokenizers()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=pieces, merges=merges))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_tokens(library_tokens(added))
    return tokenizer


def library_tokens(added: list[AddedToken]) -> list[Any]:
    """Return added tokens of the `tokenizers` library, which finds them in a text."""
    return [_tokenizers().AddedToken(**asdict(token), special=False) for token in added]


@cache
def _byte_characters() -> str:
    """Return the printable character of each byte: itself in printable Latin-1, else one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


def _beginning(chunks: Iterable[str]) -> Iterator[str]:
    """Yield the beginning of a text, on which merges are fitted."""
    characters, words = 0, set[str]()
    for chunk in chunks:
        yield chunk[: _FIT_CHARACTERS - characters]
        characters += len(chunk)
        words.update(chunk.split())
        if characters >= _FIT_CHARACTERS or len(words) > _FIT_WORDS:
            return


def _slices(chunks: Iterable[str], size: int = 1 << 14) -> Iterator[str]:
    """Smaller chunks: the library holds back hundreds of those it is given."""
    for chunk in chunks:
        for begin in range(0, len(chunk), size):
            yield chunk[begin : begin + size]


def _scalars(texts: list[str]) -> list[str]:
    """`texts` with U+FFFD for each half of a surrogate pair, which is no character and which the library refuses."""
    return [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]


_NEXT_BYTES = [bytes([byte]) for byte in range(0x80, 0xC0)]  # of a character, after its first


def _completed(piece: bytes) -> set[str]:
    """Return the text of bytes; if they end inside a character, one text for each likely completion."""
    with suppress(UnicodeDecodeError):
        return {piece.decode()}
    texts = set[str]()
    for missing in (1, 2, 3):
        for middle, last in product((b"\x80", b"\x90", b"\xa0")[: 3 if missing > 1 else 1], _NEXT_BYTES):
            with suppress(UnicodeDecodeError):
                texts.add((piece + middle * (missing - 1) + last).decode())
    return texts


@dataclass(frozen=True)
class TokenizerFile:
    """Subwords of a tokenizer.json."""

    vocabulary: BPEVocabulary  # its merges and added tokens
    numbers: list[int]  # the number that the file gives each piece of the vocabulary


def read_tokenizer(path: str | Path, *, eos: bool = False) -> TokenizerFile:
    """Read byte-level BPE as in GPT-2 (Radford et al. 2019): merges and added tokens; nothing in the file is executed.

    Texts are encoded as the `tokenizers` library encodes them without special tokens around them; a special token in a
    text is one symbol, too. Tokenizers that normalise a text, or lose some of it in another way, are refused.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file: expected a tokenizer.json")
    content = read_json(path)
    model = content.get("model")
    if not isinstance(model, dict):
        raise ValueError(f"{path}: expected a tokenizer.json with a model, got none")
    _check_kind(path, content, model)
    numbers, pairs = model.get("vocab"), model.get("merges")
    if not isinstance(numbers, dict) or not all(type(number) is int and number >= 0 for number in numbers.values()):
        raise ValueError(f"{path}: vocab: expected a number for each symbol")
    merges = [_pair(path, pair) for pair in pairs] if isinstance(pairs, list) else []
    added = _added_tokens(path, content.get("added_tokens"))
    try:
        vocabulary = BPEVocabulary(merges, eos=eos, added=[AddedToken(**fields) for fields, _ in added])
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    numbers = numbers | {fields["content"]: number for fields, number in added if fields["content"] not in numbers}
    if missing := [piece for piece in vocabulary.pieces if piece not in numbers]:
        raise ValueError(f"{path}: vocab: expected every byte and every merge, {missing[0]!r:.80} is missing")
    if other := [fields["content"] for fields, number in added if numbers[fields["content"]] != number]:
        raise ValueError(f"{path}: added_tokens: {other[0]!r:.80} has another number in vocab")
    return TokenizerFile(vocabulary, [numbers[piece] for piece in vocabulary.pieces])


_FLAGS = ("single_word", "normalized", "lstrip", "rstrip")


def _added_tokens(path: Path, entries: Any) -> list[tuple[dict[str, Any], int]]:
    """Return the fields and the number of each added token."""
    added = []
    for entry in entries if isinstance(entries, list) else []:
        flags = {flag: entry.get(flag, False) for flag in _FLAGS} if isinstance(entry, dict) else {}
        known = bool(flags) and isinstance(entry.get("content"), str) and type(entry.get("id")) is int
        if not known or entry["id"] < 0 or not all(type(flag) is bool for flag in flags.values()):
            raise ValueError(f"{path}: added_tokens: expected a content and an id, got {entry!r:.80}")
        if flags.pop("lstrip") | flags.pop("rstrip"):
            raise ValueError(
                f"{path}: added_tokens: {entry['content']!r:.80} takes the white space beside it (lstrip or rstrip), "
                "which loses text: set both to false, or fit symbols of your own"
            )
        added.append(({"content": entry["content"], **flags}, entry["id"]))
    return added


def _pair(path: Path, pair: Any) -> tuple[str, str]:
    parts = pair.split(" ") if isinstance(pair, str) else pair
    if not isinstance(parts, list) or len(parts) != 2 or not all(isinstance(part, str) and part for part in parts):
        raise ValueError(f"{path}: merges: expected pairs of symbols, got {pair!r:.80}")
    return parts[0], parts[1]


def _check_kind(path: Path, content: dict[str, Any], model: dict[str, Any]) -> None:
    splitter = content.get("pre_tokenizer")
    splitter = splitter if isinstance(splitter, dict) else {}
    if splitter.get("type") == "Sequence" and isinstance(splitter.get("pretokenizers"), list):
        splitter = splitter["pretokenizers"][0] if len(splitter["pretokenizers"]) == 1 else {}
    wrong = {
        f"the model {model.get('type')!r:.40}": model.get("type") != "BPE",
        "another way to split words": splitter.get("type") != "ByteLevel" or splitter.get("use_regex") is False,
        "a space put before the text": splitter.get("add_prefix_space") is not False,
        "a normalizer": content.get("normalizer") is not None,
        "ignore_merges": bool(model.get("ignore_merges")),
        "byte_fallback": bool(model.get("byte_fallback")),
        "dropout": bool(model.get("dropout")),
        "a suffix of words": bool(model.get("end_of_word_suffix") or model.get("continuing_subword_prefix")),
    }
    if misfits := [name for name, is_wrong in wrong.items() if is_wrong]:
        raise ValueError(
            f"{path}: expected byte-level BPE as in GPT-2, which keeps every text, got a tokenizer with {misfits[0]}: "
            "fit symbols of your own with BPEVocabulary.fit"
        )
