"""Where each symbol stands in the text that they all make."""

import numpy.typing as npt

from chainrule.data.vocabulary import Vocabulary

_WINDOW = 8  # symbols decoded again with each next one: a character has at most four bytes


def symbol_spans(vocabulary: Vocabulary, ids: npt.ArrayLike) -> tuple[str, list[tuple[int, int]]]:
    """The text of symbols (T,), and the start and stop of each in it.

    A byte, or a piece of a word, that goes on with a character begun before it shares that character. The space that
    is put between words belongs to none.

    >>> from chainrule.data import ByteVocabulary, WordVocabulary
    >>> symbol_spans(ByteVocabulary(), [97, 195, 169, 98])
    ('aéb', [(0, 1), (1, 2), (1, 2), (2, 3)])
    >>> symbol_spans(WordVocabulary(["a", "cat"]), [2, 3, 1])
    ('a cat\\n', [(0, 1), (2, 5), (5, 6)])
    """
    symbols = vocabulary.check_ids(ids).tolist()
    text = vocabulary.decode(symbols)
    window: list[int] = []
    shown, at, spans = 0, 0, []
    for symbol in symbols:
        window.append(symbol)
        now = len(vocabulary.decode(window))
        start, at = at, at + now - shown
        if vocabulary.level == "word" and at - start > 1 and text[start] == " ":
            start += 1
        spans.append((min(start, at - 1), at))
        window = window[1 - _WINDOW :]
        shown = len(vocabulary.decode(window))
    assert at == len(text)
    return text, spans
