"""The label of a sound, read off its name."""

import re
from collections.abc import Iterable, Sequence


class Labelling:
    """Label of a sound file, taken from its name or its folder.

    Args:
        pattern: a file name without its ending, in which `{label}` is the label and `*` matches anything; both are
            as short as the rest allows. `None` takes the folder that the file is in.

    >>> Labelling("{label}_*")("digits/7_jackson_12.wav"), Labelling("*_{label}_*")("7_jackson_12.wav")
    ('7', 'jackson')
    >>> Labelling(None)("birds/blackcap/3.flac")
    'blackcap'
    """

    def __init__(self, pattern: str | None):
        self.pattern = pattern
        if pattern is None:
            return
        if pattern.count("{label}") != 1:
            raise ValueError(f"label_pattern: expected {{label}} once, as in '{{label}}_*', got {pattern!r}")
        parts = re.split(r"(\{label\}|\*)", pattern)
        patterns = {"{label}": "(.+?)", "*": ".*?"}
        self._expression = re.compile("".join(patterns.get(part, re.escape(part)) for part in parts))

    def __call__(self, name: str) -> str:
        *folders, file = name.split("/")
        if self.pattern is None:
            if not folders:
                raise ValueError(f"{name}: expected a folder named after its label, as all the others have")
            return folders[-1]
        match = self._expression.fullmatch(file.rpartition(".")[0])
        if match is None:
            raise ValueError(f"{name}: does not fit --label-pattern {self.pattern!r}: rename it, or change the pattern")
        return match[1]


def ordered(labels: Iterable[str]) -> list[str]:
    """Different labels, numbers by their size.

    >>> ordered(["10", "9", "9"]), ordered(["b", "10", "9"])
    (['9', '10'], ['10', '9', 'b'])
    """
    different = set(labels)
    return sorted(different, key=int) if all(map(_is_number, different)) else sorted(different)


def label_number(labels: Sequence[str], label: str) -> int:
    """Return the index of a label among the labels of a run."""
    if label not in labels:
        some = ", ".join(labels[:20]) + (", ..." if len(labels) > 20 else "")
        raise ValueError(f"label: expected one of {some}, got {label!r}")
    return labels.index(label)


def _is_number(label: str) -> bool:
    return label.isascii() and label.isdecimal() and len(label) < 19
