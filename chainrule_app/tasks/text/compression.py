"""A file as symbols of a text's vocabulary and the few things that they cannot express, and back, byte for byte."""

import json
import lzma
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from chainrule.coding import CodedBatch, RowLayout
from chainrule.data import WordVocabulary, padded
from chainrule_app.tasks.capabilities import EncodedFile, FileCodec
from chainrule_app.tasks.container import unpacked

if TYPE_CHECKING:
    from chainrule.data import Vocabulary
    from chainrule_app.readers.store import Ids

STREAMS = 64
# Each stream begins without context: its first symbols cost about 10 bits more than in the middle of the text (measured
# on tiny Shakespeare), which is 0.1% of the bits of this many.
SYMBOLS_OF_A_STREAM = 4096
MOST_UNKNOWN = 0.2  # a larger share of symbols outside the vocabulary makes another file than the model is for
_SURROGATE = re.compile("[\ud800-\udfff]")  # a byte that is no UTF-8, as Python decodes it


class TextCodec(FileCodec):
    """Codec of a file as symbols of a vocabulary, in streams or by line, as in training."""

    def __init__(self, vocabulary: "Vocabulary", reading: str, unit: str):
        self.vocabulary, self.unit = vocabulary, unit
        self.eos = vocabulary.eos if reading == "lines" else None

    def express(self, data: bytes) -> EncodedFile:
        ids, extra = _symbols(self.vocabulary, data)
        unknown = 0 if self.vocabulary.unknown is None else int((ids == self.vocabulary.unknown).sum())
        if not len(ids) or unknown > MOST_UNKNOWN * len(ids):
            raise ValueError(f"{unknown:,} of its {len(ids):,} symbols are not in the vocabulary")
        layout: dict[str, Any] = {"symbols": len(ids)}
        if self.eos is not None:
            if ids[-1] != self.eos:
                ids, layout["open"] = np.append(ids, self.eos), True
            ends = np.flatnonzero(ids == self.eos) + 1
            layout |= {"count": len(ends), "length": int(np.diff(ends, prepend=0).max())}
            rows = np.split(ids, ends[:-1])
        else:
            layout["length"] = -(-len(ids) // min(max(len(ids) // SYMBOLS_OF_A_STREAM, 1), STREAMS))
            rows = np.split(ids, range(layout["length"], len(ids), layout["length"]))
        side = lzma.compress(json.dumps(extra).encode(), lzma.FORMAT_ALONE, preset=9) if extra else b""
        return EncodedFile(layout, side, self.lay_out(layout, rows), len(ids), self.unit)

    def lay_out(self, layout: dict[str, Any], elements: "Sequence[Ids] | None" = None) -> RowLayout:
        length, symbols = layout["length"], layout["symbols"]
        count = layout["count"] if self.eos is not None else -(-symbols // length)
        size = min(count, STREAMS)
        batches = []
        for start in range(0, count, size):
            left = length * (count - start) if self.eos is not None else symbols
            lengths = np.clip(left - length * np.arange(size), 0, length)
            x = None
            if elements is not None:
                chosen = elements[start : start + size]
                none = np.zeros(0, dtype=np.int64)
                x = padded([*chosen, *[none] * (size - len(chosen))], max(map(len, chosen)))
            batches.append(CodedBatch(x, lengths))
        return RowLayout(size, length, batches, self.eos)

    def restore(self, layout: dict[str, Any], side: bytes, elements: Sequence[Tensor], most: int) -> bytes:
        rows = []
        for batch, coded in zip(elements, self.lay_out(layout).batches, strict=True):
            assert coded.lengths is not None
            for row, length in zip(batch.numpy(), coded.lengths, strict=True):
                if length:
                    rows.append(row[: length if self.eos is None else int((row == self.eos).argmax()) + 1])
        ids = np.concatenate(rows)
        if layout.get("open"):
            ids = ids[:-1]
        extra = json.loads(unpacked(side, most)) if side else {}
        return _bytes(self.vocabulary, ids, extra, iter(extra.get("unknown", ())))


def _symbols(vocabulary: "Vocabulary", data: bytes) -> "tuple[Ids, dict[str, Any]]":
    """Encode a file as symbols; also return unknown characters or words, and irregular lines by number."""
    text = data.decode("utf-8", "surrogateescape")
    extra: dict[str, Any] = {}
    if vocabulary.level in ("word", "bpe"):
        text, extra = _regular_lines(vocabulary, text)
    ids = vocabulary.encode(text)
    if vocabulary.unknown is not None:
        units = list(text)
        if isinstance(vocabulary, WordVocabulary):
            units = [unit for line in text.split("\n") for unit in (*vocabulary.split(line), "\n")]
        unknown = [units[index] for index in np.flatnonzero(ids == vocabulary.unknown)]
        if unknown:
            extra["unknown"] = "".join(unknown) if vocabulary.level == "char" else unknown
    return ids, extra


def _bytes(vocabulary: "Vocabulary", ids: "Ids", extra: dict[str, Any], unknown: Iterator[str]) -> bytes:
    """Decode symbols, inserting irregular lines and unknown characters or words."""
    if vocabulary.level == "byte":
        return ids.astype(np.uint8).tobytes()
    if vocabulary.level == "char":
        characters = np.array([vocabulary.decode([symbol]) for symbol in range(len(vocabulary))], dtype=object)[ids]
        for index in np.flatnonzero(ids == vocabulary.unknown):
            characters[index] = next(unknown)
        return "".join(characters).encode("utf-8", "surrogateescape")
    if isinstance(vocabulary, WordVocabulary):
        text = vocabulary.decode_with(ids, unknown)
    else:
        text = vocabulary.decode(ids)
    if "lines" in extra:
        text = "\n".join(_with_lines(text.split("\n") if extra["kept"] else [], dict(extra["lines"])))
    return text.encode("utf-8", "surrogateescape")


def _regular_lines(vocabulary: "Vocabulary", text: str) -> tuple[str, dict[str, Any]]:
    """Separate the lines that symbols restore exactly from the others."""
    regular_lines, left_out = [], []
    for number, line in enumerate(text.split("\n")):
        if isinstance(vocabulary, WordVocabulary):
            regular = vocabulary.join(vocabulary.split(line)) == line
        else:
            regular = not _SURROGATE.search(line)
        if regular:
            regular_lines.append(line)
        else:
            left_out.append((number, line))
    return "\n".join(regular_lines), {"lines": left_out, "kept": len(regular_lines)} if left_out else {}


def _with_lines(lines: list[str], left_out: dict[int, str]) -> Iterator[str]:
    regular = iter(lines)
    for number in range(len(lines) + len(left_out)):
        yield left_out[number] if number in left_out else next(regular)
