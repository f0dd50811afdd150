"""Long runs of one byte, cut short before the model reads a text and put back after: they only cost time."""

import numpy as np

_LONG, _KEPT = 4096, 512  # bytes of a run that is cut, and that are left of it


def cut_runs(text: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """A text without the ends of its long runs; of each end its distance from the last in what is left, its length."""
    starts = np.concatenate([[0], np.flatnonzero(text[1:] != text[:-1]) + 1])
    lengths = np.diff(starts, append=len(text))
    long = np.flatnonzero(lengths >= _LONG)
    kept, cuts, position = [], [], 0
    for start, length in zip(starts[long].tolist(), lengths[long].tolist(), strict=True):
        kept.append(text[position : start + _KEPT])
        cuts.append((start + _KEPT - position, length - _KEPT))
        position = start + length
    return np.concatenate([*kept, text[position:]]), cuts


def restore_runs(text: np.ndarray, cuts: list[tuple[int, int]]) -> np.ndarray:
    """Undo `cut_runs`."""
    parts, position = [], 0
    for distance, length in cuts:
        parts += [text[position : position + distance], np.full(length, text[position + distance - 1])]
        position += distance
    return np.concatenate([*parts, text[position:]])
