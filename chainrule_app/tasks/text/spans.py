"""Where the symbols of a text stand in it."""

import numpy.typing as npt

from chainrule.data import Vocabulary

_WINDOW = 8  # symbols decoded again with each next one: a character has at most four bytes


def symbol_spans(vocabulary: Vocabulary, ids: npt.ArrayLike) -> tuple[str, list[tuple[int, int]]]:
    """Return the text of symbols (T,), and the start and stop of each in it; bytes of one character share it."""
    symbols = vocabulary.check_ids(ids).tolist()
    text = vocabulary.decode(symbols)
    window: list[int] = []
    emitted, at, spans = 0, 0, []
    for symbol in symbols:
        window.append(symbol)
        now = len(vocabulary.decode(window))
        start, at = at, at + now - emitted
        if vocabulary.level == "word" and at - start > 1 and text[start] == " ":
            start += 1
        spans.append((min(start, at - 1), at))
        window = window[1 - _WINDOW :]
        emitted = len(vocabulary.decode(window))
    assert at == len(text)
    return text, spans
