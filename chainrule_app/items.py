"""Items of data in memory: what may be one, and what it holds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from pathlib import Path
from typing import Any

from chainrule.option_error import OptionError
from chainrule_app.heavy import np
from chainrule_app.readers.origin import STDIN, Origin
from chainrule_app.readers.sources import paths_of
from chainrule_app.readers.tagged.spans import TaggedWords

_LOUDEST = 2.0  # amplitude of a sound; what is above 1 is cut
EXPECTED = "expected a path, a frame, an array, or a list of strings, pairs or arrays"


def existing(path: str, name: str) -> str:
    if not path:
        raise ValueError(f"{name}: {EXPECTED}, got an empty string")
    if path != STDIN and ("\n" in path or not all(Path(each).exists() for each in paths_of(path))):
        raise FileNotFoundError(f"{path[:80]!r}: no such file; pass a text in memory in a list, or to fit as text=...")
    return path


def items_of(data: Any, name: str = "data") -> Iterator[Any]:
    """Iterate over the items of data in memory; raise ValueError if it is empty."""
    if hasattr(data, "batch_sampler"):
        raise OptionError(name, "expected a data set, got a DataLoader, which makes batches", "pass its dataset")
    if not isinstance(data, Iterable) and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        data = map(data.__getitem__, range(len(data)))  # a data set of PyTorch
    opened = hasattr(data, "read")
    if isinstance(data, Mapping | bytes | bytearray | Set) or not isinstance(data, Iterable) or opened:
        remedy = ": pass columns as pandas.DataFrame(data)" if isinstance(data, Mapping) else ": pass its path" * opened
        raise ValueError(f"{name}: {EXPECTED}, got {type(data).__name__}{remedy}")
    items = iter(data)
    for first in items:
        return chain((first,), items)
    raise ValueError(f"{name}: expected at least one row, got none")


def is_picture(item: Any) -> bool:
    """Tell if an item is an image of Pillow."""
    return hasattr(item, "getexif")


def is_clip(item: Any) -> bool:
    """Tell if an item is a sound of a Hugging Face Dataset, decoded or to be decoded: it has an array and a rate."""
    return hasattr(item, "get_all_samples") or (isinstance(item, Mapping) and {"array", "sampling_rate"} <= {*item})


def samples_of(clips: Iterable[Any], rate: int, origin: Origin) -> Iterator[Any]:
    """Yield the samples of clips that have one rate."""
    for number, clip in enumerate(clips):
        if not is_clip(clip) or clip["sampling_rate"] != rate:
            raise ValueError(f"{origin.at(number)}: expected a sound of {rate:,} samples a second, got another")
        yield clip["array"]


def amplitudes_of(sound: Any, where: str) -> Any:
    """Return a sound as amplitudes: integers of 8, 16 or 32 bits are its samples, as in wav files."""
    array = np.asarray(sound)
    if array.dtype in ("u1", "i2", "i4"):
        return array / 128.0 - 1 if array.dtype == "u1" else array / -float(np.iinfo(array.dtype).min)
    if array.dtype.kind != "f" or not (abs(array) <= _LOUDEST).all():
        got = array.dtype if array.dtype.kind != "f" else f"{abs(array).max():g}"
        raise ValueError(f"{where}: expected amplitudes from -1 to 1, or int16, got {got}: convert the sound")
    return array


def as_array(data: Any) -> Any:
    """Convert an array or tensor to NumPy; half precision becomes 32 bits, and what is masked NaN."""
    if hasattr(data, "detach"):
        data = data.detach().cpu()
        data = data.float() if data.dtype.is_floating_point and data.dtype.itemsize < 4 else data
    return data.astype(float).filled(np.nan) if np.ma.is_masked(data) else np.asarray(data)


def words_of(origin: Origin, index: int, words: Sequence[str]) -> Sequence[str]:
    """Return the words of a sentence; a blank in one of them raises ValueError."""
    for word in words:
        if not word or any(blank in word for blank in " \t\n"):
            raise ValueError(f"{origin.at(index)}: expected words without blanks, got {word!r:.80}")
    return words


def all_of(kind: type, rows: Iterator[Any], origin: Origin) -> Iterator[Any]:
    """Yield rows that are all of one kind."""
    for number, row in enumerate(rows):
        if not isinstance(row, kind) or (kind is Sequence and isinstance(row, str)):
            raise ValueError(f"{origin.at(number)}: expected rows of one kind, got {row!r:.80}")
        yield row


def sentence_of(origin: Origin, index: int, pairs: Sequence[Any]) -> TaggedWords:
    """Return the words of a sentence and their tags, which words alone have none of."""
    if all(isinstance(word, str) for word in pairs):
        return TaggedWords(words_of(origin, index, pairs))
    for pair in pairs:
        if not (isinstance(pair, Sequence) and len(pair) == 2 and all(map(_is_word, pair))):
            raise ValueError(f"{origin.at(index)}: expected sentences of pairs of a word and a tag, got {pair!r:.80}")
    return TaggedWords([word for word, _ in pairs], [tag for _, tag in pairs])


def _is_word(part: Any) -> bool:
    return isinstance(part, str) and part != "" and not any(blank in part for blank in " \t\n")


def pair_of(origin: Origin, index: int, pair: Sequence[Any], *, in_lines: bool) -> tuple[str, str]:
    """Return a text and its label, or a source and its target, which are one line each."""
    if len(pair) != 2 or None in pair:
        raise ValueError(
            f"{origin.at(index)}: expected strings or pairs of strings, got {len(pair)} values: {pair!r:.80}"
        )
    first, second = map(str, pair)
    if in_lines and ("\n" in first or "\n" in second):
        raise ValueError(f"{origin.at(index)}: expected a source and a target in one line each, got {pair!r:.80}")
    return first, second


def labelled_columns(frame: Any, texts: Sequence[str], text_column: str) -> dict[str, str]:
    """Name the columns of texts and labels, so that the first row of the file is known to be a header."""
    from chainrule_app.readers.labelled.labelled_file import LABEL_NAMES, TEXT_NAMES

    def usual(names: Sequence[str]) -> list[str]:
        return [name for name in frame.names if name.lower() in names]

    taken = {column.name: column.take for column in frame.columns}
    named = [text_column] if text_column in frame.names else usual(TEXT_NAMES)
    named = named or sorted(texts, key=lambda name: -taken[name](slice(None)).n_unique())
    if not named:
        return {}
    rest = [name for name in frame.names if name != named[0]]
    labels = [name for name in usual(LABEL_NAMES) if name in rest] or (rest if len(rest) == 1 else [])
    return {"text_column": named[0]} | ({"label_column": labels[0]} if labels else {})
