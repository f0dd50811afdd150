"""The levels at which a text can be read, by name."""

from pathlib import Path
from typing import Any

from chainrule.data.atomic import read_json
from chainrule.data.characters import ByteVocabulary, CharVocabulary, WordVocabulary
from chainrule.data.subwords import BPEVocabulary
from chainrule.data.vocabulary import Vocabulary

LEVELS: dict[str, type[Vocabulary]] = {
    "char": CharVocabulary,
    "byte": ByteVocabulary,
    "word": WordVocabulary,
    "bpe": BPEVocabulary,
}


def check_level(level: str) -> None:
    """Raise a ValueError that lists the levels for any other `level`."""
    if level not in LEVELS:
        raise ValueError(f"level: expected one of {', '.join(LEVELS)}, got {level!r}")


def vocabulary_from_json(content: dict[str, Any]) -> Vocabulary:
    """Build the vocabulary that `Vocabulary.to_json` described. Nothing in it is executed.

    Raises:
        ValueError: the content is of a newer version, or no vocabulary.

    Example:
        >>> vocabulary_from_json({"format": 1, "level": "char", "characters": "ab", "eos": False}).encode("ba")
        array([2, 1])
    """
    version = content.get("format")
    if type(version) is not int or version < 1:
        raise ValueError(f"vocabulary format: expected 1, got {version!r}; the file is damaged")
    if version > 1:
        raise ValueError(f"vocabulary format: expected 1, got {version}, which a newer chainrule wrote")
    level = content.get("level")
    if not isinstance(level, str) or level not in LEVELS:
        raise ValueError(f"vocabulary level: expected one of {', '.join(LEVELS)}, got {level!r}")
    return LEVELS[level].from_json(content)


def load_vocabulary(path: str | Path) -> Vocabulary:
    """Read a vocabulary written by `Vocabulary.save`; errors name the file."""
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file: expected a vocabulary")
    content = read_json(path)
    try:
        return vocabulary_from_json(content)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
