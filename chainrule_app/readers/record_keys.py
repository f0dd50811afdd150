"""What the keys of records mean: texts and messages, a source and its target, words and their tags.

A JSON object has no order. A key is what its name says (`source`, `src`, `question`; `target`, `answer`, ...), or what
an option says. Keys of two languages are told apart by their names, those of the first record in its order.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from chainrule.option_error import UserError, option
from chainrule_app.readers.files_in_turn import FilesInTurn
from chainrule_app.readers.origin import HeldRows, Origin
from chainrule_app.readers.records import LOOKED_AT, Record, numbered_records, records
from chainrule_app.readers.tagged.spans import TaggedWords, span_keys, tagged_words

SOURCES = ("source", "src", "input", "question", "prompt", "query", "instruction", "article", "document", "original")
TARGETS = ("target", "tgt", "trg", "output", "answer", "response", "completion", "summary", "reply", "translation")
_WORDS = ("tokens", "words", "form", "forms", "token", "word")
_TAGS = ("tags", "tag", "ner", "pos", "upos", "xpos", "chunk", "chunks", "labels", "label", "entities")
_MESSAGES = ("messages", "conversations", "conversation", "dialog", "dialogue")
OTHERS = frozenset({"id", "ids", "idx", "lang", "language", "languages", "url", "split", "domain", "title"})
_BREAKS = str.maketrans("\t\r\n", "   ")
_SPEAKERS = (("role", "content"), ("from", "value"))  # keys of a message, and of its text


@dataclass(frozen=True)
class Keys:
    """Names of the keys to read; None where the records tell."""

    text: str | None = None
    source: str | None = None
    target: str | None = None
    tags: str | None = None
    spans: bool = False  # whether the tags are spans of characters of a text
    answers: bool = True  # whether targets and tags are wanted

    def options(self, kind: str) -> dict[str, str | bool | None]:
        """Return the reading options that name these keys."""
        if kind == "pairs":
            return {"source_key": self.source, "target_key": self.target}
        if kind != "tags":
            return {}
        return {"tag_key": self.tags, "spans": True} if self.spans else {"tag_key": self.tags}

    def __str__(self) -> str:
        named = {"source": self.source, "target": self.target, "spans" if self.spans else "tags": self.tags}
        return ", ".join(f"{part} under the key {key!r}" for part, key in named.items() if key is not None)


def keys_of(options: Any) -> Keys:
    """Return the keys that the reading options of a task name."""
    names = ("text_column", "source_key", "target_key", "tag_key")
    text, source, target, tags = (getattr(options, name, None) for name in names)
    return Keys(text, source, target, tags, bool(getattr(options, "spans", False)))


def texts_in(files: FilesInTurn, keys: Keys) -> Iterator[str]:
    """Yield the texts of the records of files."""
    for number, record in numbered_records(files):
        yield text_of(record, keys.text, files.origin.at(number))


def pairs_in(numbered: Iterable[tuple[int, Record]], keys: Keys, origin: Origin) -> Iterator[list[str]]:
    """Yield the sources and targets of records, or the sources alone, in one line each."""
    for number, record in numbered:
        yield [text.translate(_BREAKS).strip() for text in _pair_of(record, keys, origin.at(number))]


def sentences_in(
    numbered: Iterable[tuple[int, Record]], keys: Keys, origin: Origin
) -> Iterator[tuple[int, TaggedWords]]:
    """Yield the words of numbered records, and their tags if they have any."""
    for number, record in numbered:
        yield number, _sentence_of(record, keys, origin.at(number))


class RecordPairs(HeldRows):
    """Sources and targets in the records of files, which are read anew each time."""

    def __init__(self, files: FilesInTurn, keys: Keys):
        super().__init__(files.origin, ())
        self._files, self._keys = files, keys

    def __iter__(self) -> Iterator[tuple[int, Sequence[str]]]:
        return enumerate(pairs_in(numbered_records(self._files), self._keys, self.origin), 1)

    def fingerprint(self) -> dict[str, Any]:
        return self._files.fingerprint()


def found_keys(record: Record, kind: str, keys: Keys, where: str) -> Keys:
    """Return the keys with those that the first record tells."""
    if kind == "pairs":
        return _pair_keys(record, keys, where)
    return _sentence_keys(record, keys, where) if kind == "tags" else keys


def task_of(record: Record) -> str:
    """Return the task that lists and mappings in a record tell: text, tag or translate; empty where there are none.

    >>> task_of({"tokens": ["Hi"], "tags": ["X"]}), task_of({"translation": {"de": "ja"}}), task_of({"a": 1})
    ('tag', 'translate', '')
    """
    if _messages_key(record) is not None:
        return "text"
    if isinstance(record.get("translation"), dict):
        return "translate"
    words = _words_in(record)
    lists = [name for name, value in record.items() if isinstance(value, list) and name != words]
    return "tag" if (words is not None and lists) or any(map(record.get, span_keys(record))) else ""


def task_of_file(path: str | Path) -> str:
    """Return the task that the records of a file tell; the first ones may be texts in which nobody marked a span."""
    try:
        for _, record in islice(records(str(path)), LOOKED_AT):
            if (task := task_of(record)) or not span_keys(record):
                return task
    except (OSError, ValueError, ImportError):
        pass  # the reader says what is wrong
    return ""


def is_message(value: Any) -> bool:
    """Return whether a value is a message of a chat: who speaks, and a text."""
    return isinstance(value, dict) and any(role in value and text in value for role, text in _SPEAKERS)


def is_chat(value: Any) -> bool:
    """Return whether a value is a conversation: a list of messages."""
    return isinstance(value, list | tuple) and bool(value) and all(map(is_message, value))


def has_texts(record: Record) -> bool:
    """Return whether a record has a text, or messages, which are read as one."""
    return "text" in record or _messages_key(record) is not None


def _messages_key(record: Record) -> str | None:
    return next((name for name in _MESSAGES if isinstance(record.get(name), list)), None)


def text_of(record: Record, column: str | None, where: str) -> str:
    """Return the text of a record: of a named column, else under `text`, or its messages as one text."""
    name = column or "text"
    if column is None and name not in record:
        name = _messages_key(record) or name
    text = record.get(name)
    if isinstance(text, list):
        return conversation(text, f"{where}: {name!r}")
    if not isinstance(text, str):
        got = "none" if name not in record else f"{text!r:.60}"
        raise UserError(
            f"{where}: expected a text in the column {name!r}, got {got}",
            f"name it with {option('text_column')} (columns: {_names(record)})",
        )
    return text


def conversation(messages: Sequence[Any], where: str = "messages") -> str:
    r"""Return messages as lines `role: content`, and an empty line.

    >>> conversation([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}])
    'user: Hi\nassistant: Hello\n'
    """
    lines = []
    for message in messages:
        fields = message if isinstance(message, dict) else {}
        role, content = next(
            ((fields.get(role), fields.get(text)) for role, text in _SPEAKERS if text in fields), ("", 0)
        )  # the content of a message that calls a tool is null
        parts = content if isinstance(content, list) else [{"text": "" if content is None else content}]
        texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
        if not isinstance(role, str) or not all(isinstance(text, str) for text in texts):
            raise ValueError(
                f"{where}: expected messages with a role and a content, got {message!r:.60}: write a text under one key"
            )
        lines.append(f"{role}: {''.join(map(str, texts))}\n")
    return "".join(lines)


def _pair_keys(record: Record, keys: Keys, where: str) -> Keys:
    """Return the keys of the source and the target; no target where the record has a source alone."""
    fields = _pair_fields(record)
    texts = [name for name, value in fields.items() if isinstance(value, str)]
    sources = [name for name in texts if name == keys.source] or _named(texts, SOURCES)
    targets = [name for name in texts if name == keys.target] or _named(texts, TARGETS)
    for role, found in (("source", sources), ("target", targets)):
        if len(found) > 1:
            raise UserError(
                f"{where}: several keys may hold the {role} ({', '.join(found)})",
                f"name one with {option(f'{role}_key')}",
            )
    wanted = (keys.source, keys.target if keys.answers else None)
    missing = [name for name in wanted if name is not None and name not in texts]
    if missing:
        raise ValueError(f"{where}: expected a text under {missing[0]!r}, got the keys {_names(fields)}")
    others = [name for name in texts if name not in (*sources, *targets) and not _parts(name) & OTHERS]
    if not sources and len(others) == 1 + (not targets):
        sources, others = others[:1], others[1:]
    elif not sources and not (targets and others):  # a side alone
        sources, targets, others = targets or others, [], []
    if sources and not targets and len(others) <= 1:
        targets = others
    if len(sources) != 1 or (not targets and others):
        raise UserError(
            f"{where}: expected two texts, a source and a target, got the keys {_names(fields)}",
            f"name them with {option('source_key')} and {option('target_key')}",
        )
    return replace(keys, source=sources[0], target=targets[0] if targets else None)


def _pair_of(record: Record, keys: Keys, where: str) -> list[str]:
    """Return the texts of a record under the keys of a source and a target, or of a source alone."""
    fields = _pair_fields(record)
    texts = []
    for name in filter(None, (keys.source, keys.target if keys.answers else None)):
        text = fields.get(name)
        if not isinstance(text, str):
            got = "none" if name not in fields else f"{text!r:.60}"
            raise ValueError(f"{where}: expected a text under {name!r}, got {got} (the keys are {_names(fields)})")
        texts.append(text)
    return texts


def _pair_fields(record: Record) -> Mapping[str, Any]:
    inner = record.get("translation")  # as the data sets of Hugging Face have it
    return inner if isinstance(inner, dict) else record


def _named(names: Sequence[str], roles: Sequence[str]) -> list[str]:
    """Return the names that are a role, or else those with one in them, such as source_text; not source_language."""
    exact = [name for name in names if name.lower() in roles]
    return exact or [name for name in names if _parts(name) & set(roles) and not _parts(name) & OTHERS]


def _parts(name: str) -> set[str]:
    """Return the words of a name.

    >>> sorted(_parts("sourceText")), sorted(_parts("ner_tags"))
    (['source', 'text'], ['ner', 'tags'])
    """
    return set(re.findall("[a-z]+", re.sub("(?<=[a-z])(?=[A-Z])", " ", name).lower()))


def _sentence_keys(record: Record, keys: Keys, where: str) -> Keys:
    """Return the key of the tags or spans, if a record of words or of a text has some."""
    words = _words_in(record)
    if words is None:
        named = span_keys(record)
        if not named and not isinstance(record.get("text"), str):
            raise ValueError(
                f"{where}: expected the lists tokens and tags, equally long, or a text and its spans, got the keys "
                f"{_names(record)}"
            )
    else:
        lists = [name for name, value in record.items() if isinstance(value, list) and name != words]
        named = [name for name in lists if _parts(name) & set(_TAGS)] or lists
    if keys.tags is not None or not named or (len(named) > 1 and not keys.answers):
        return replace(keys, spans=words is None)
    if len(named) > 1:
        raise UserError(f"{where}: several keys hold tags ({', '.join(named)})", f"name one with {option('tag_key')}")
    return replace(keys, tags=named[0], spans=words is None)


def _words_in(record: Record) -> str | None:
    """Return the key of the words of a record, if it has a list of them."""
    lists = [name for name in _WORDS if isinstance(record.get(name), list) and (record[name] or "text" not in record)]
    return next((name for name in lists if not any(isinstance(word, dict) for word in record[name])), None)


def _sentence_of(record: Record, keys: Keys, where: str) -> TaggedWords:
    """Return the words of a record, and their tags if it has tags."""
    key = _words_in(record)
    if key is None:
        return tagged_words(record, keys.tags if keys.answers else None, where)
    columns = [record[key]]
    if keys.tags is not None and (keys.answers or keys.tags in record):
        columns.append(record.get(keys.tags))
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        raise ValueError(
            f"{where}: expected the lists tokens and {keys.tags}, equally long, got the keys {_names(record)}"
        )
    texts = [list(map(str, column)) for column in columns]
    for cell in chain(*texts):
        if not cell or any(sign in cell for sign in " \t\r\n"):
            raise ValueError(f"{where}: expected words and tags without blanks, got {cell!r:.60}")
    return TaggedWords(texts[0], texts[1] if len(texts) > 1 else ())


def _names(record: Collection[Any]) -> str:
    return ", ".join(map(str, list(record)[:12]))
