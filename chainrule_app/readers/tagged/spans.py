"""Spans of characters with labels, as annotation tools export them, and the words and BIO tags that they mark.

- doccano: `{"text": ..., "label": [[0, 3, "PER"]]}`, or entities with `start_offset`, `end_offset` and `label`;
- spaCy: `{"text": ..., "ents": [{"start": 0, "end": 3, "label": "PER"}]}`, also `spans`, and `tokens` with offsets;
- Label Studio: `{"data": {"text": ...}, "annotations": [{"completed_by": 1, "result": [{"value": {...}}]}]}`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from chainrule.option_error import UserError, option

_KEYS = ("label", "labels", "ents", "entities", "spans", "annotations", "result")
_STARTS, _ENDS, _LABELS = ("start", "start_offset"), ("end", "end_offset"), ("label", "labels")
_WORD = re.compile(r"\d+(?:[.,]\d+)+|\w+|[^\w\s]")

Span = tuple[int, int, str]  # first character, the character after the last, label


class TaggedWords(NamedTuple):
    """The words of a sentence, a tag for each or none, and where the words are in a text, if there is one."""

    words: Sequence[str]
    tags: Sequence[str] = ()
    text: str = ""
    offsets: Sequence[tuple[int, int]] = ()
    widened: int = 0  # spans that began or ended within a word


def words_at(text: str) -> list[tuple[int, int]]:
    """Return where the words of a text are: letters and digits, numbers with their points, and each other sign.

    >>> text = "Ada's 3.5 kg."
    >>> [text[start:end] for start, end in words_at(text)]
    ['Ada', "'", 's', '3.5', 'kg', '.']
    """
    return [match.span() for match in _WORD.finditer(text)]


def words_of_text(text: str) -> TaggedWords:
    """Return the words of a text without tags."""
    offsets = words_at(text)
    return TaggedWords([text[start:end] for start, end in offsets], (), text, offsets)


def words_between_blanks(text: str) -> TaggedWords:
    """Return what is between the blanks of a text, without tags; other white space belongs to a word."""
    offsets = [match.span() for match in re.finditer("[^ \t\r\n]+", text)]
    return TaggedWords([text[start:end] for start, end in offsets], (), text, offsets)


def span_keys(record: Mapping[str, Any]) -> list[str]:
    """Return the keys of a record that hold spans of its text: those with spans, or else usual ones with empty lists.

    Several annotators may have a key each, whatever it is called.
    """
    if _text(record) is None:
        return []
    if _annotations(record):
        return ["annotations"]
    found = {name: _listed(record[name]) for name in _KEYS if isinstance(record.get(name), list | dict)}
    found |= {name: value for name, value in record.items() if name not in found and isinstance(value, list) and value}
    full = [name for name, spans in found.items() if spans and all(map(_is_span, spans))]
    return full or [name for name, spans in found.items() if not spans and isinstance(record[name], list)]


def annotated_texts(value: Any) -> list[dict[str, Any]] | None:
    """Return the records of a list of [text, {"entities": spans}], as spaCy 2 trains on; None for anything else.

    Annotation tools write the list under "annotations", with null for a text that was skipped.
    """
    listed = value.get("annotations") if isinstance(value, dict) and "classes" in value else value
    entries = [entry for entry in listed if entry is not None] if isinstance(listed, list) else []
    for entry in entries:
        pair = isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], dict)
        if not pair or "entities" not in entry[1]:
            return None
    return [{"text": text, **spans} for text, spans in entries] or None


def tagged_words(record: Mapping[str, Any], key: str | None, where: str) -> TaggedWords:
    """Return the words of a record with a text, and the BIO tags of its spans under a key, if one is given.

    Args:
        record: as an annotation tool exports it.
        key: of the spans; of Label Studio, "annotations", or who annotated.
        where: the record, for errors.
    """
    text = _text(record)
    if text is None:
        raise ValueError(f"{where}: expected a text, got the keys {', '.join(map(str, list(record)[:12]))}")
    own = [word for word in record.get("tokens") or () if isinstance(word, dict) and {"start", "end"} <= {*word}]
    offsets = [(int(word["start"]), int(word["end"])) for word in own] or words_at(text)
    words = [text[start:end] for start, end in offsets]
    if key is None:
        return TaggedWords(words, (), text, offsets)
    tags, widened = _tags_of(offsets, _spans_under(record, key, text, where), text, where)
    return TaggedWords(words, tags, text, offsets, widened)


def spans_of(entities: Sequence[tuple[str, int, int]], offsets: Sequence[tuple[int, int]]) -> list[list[Any]]:
    """Return entities of words as spans of characters [start, end, label].

    >>> spans_of([("PER", 0, 2)], [(0, 3), (4, 12), (13, 16)])
    [[0, 12, 'PER']]
    """
    return [[offsets[start][0], offsets[stop - 1][1], name] for name, start, stop in entities]


def _text(record: Mapping[str, Any]) -> str | None:
    data = record.get("data")
    if isinstance(data, dict):  # a task of Label Studio
        texts = [value for value in data.values() if isinstance(value, str)]
        text = data.get("text", texts[0] if len(texts) == 1 else None)
    else:
        text = record.get("text")
    return text if isinstance(text, str) else None


def _annotations(record: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Return who annotated a task of Label Studio, and the regions of each."""
    found = []
    for entry in record["annotations"] if isinstance(record.get("annotations"), list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("result"), list) and not entry.get("was_cancelled"):
            by = entry.get("completed_by")
            name = str(by.get("email", by.get("id")) if isinstance(by, dict) else by)
            regions = [region["value"] for region in entry["result"] if isinstance(region.get("value"), dict)]
            found.append((name, [region for region in regions if _is_span(region)]))
    return found


def _spans_under(record: Mapping[str, Any], key: str, text: str, where: str) -> list[Span]:
    if found := _annotations(record):
        chosen = [regions for name, regions in found if key in (name, "annotations")]
        if len(chosen) > 1:
            names = ", ".join(name for name, _ in found)
            raise UserError(f"{where}: several annotators ({names})", f"name one with {option('tag_key')}")
        listed = chosen[0] if chosen else []
    else:
        listed = _listed(record.get(key, []))
    spans: list[Span] = []
    for item in listed:
        if not _is_span(item):
            raise ValueError(f'{where}: expected spans such as [0, 3, "PER"] under {key!r}, got {item!r:.60}')
        start, end, label = _parts(item)
        if not 0 <= start < end <= len(text):
            raise ValueError(f"{where}: expected a span within {len(text)} characters, got {start} to {end}")
        spans.append((start, end, "_".join(label.split()) or "_"))
    return sorted(spans)


def _listed(value: Any) -> list[Any]:
    """Return spans as a list; of several groups, as spaCy has them, those of all."""
    groups = value.values() if isinstance(value, dict) else [value]
    return [item for group in groups if isinstance(group, list) for item in group]


def _is_span(item: Any) -> bool:
    start, end, label = _parts(item)
    return type(start) is int and type(end) is int and isinstance(label, str)


def _parts(item: Any) -> tuple[Any, Any, Any]:
    if isinstance(item, dict):
        names = (_STARTS, _ENDS, _LABELS)
        start, end, label = (next((item[name] for name in own if name in item), None) for own in names)
        return start, end, label[0] if isinstance(label, list) and label else label
    return tuple(item) if isinstance(item, list | tuple) and len(item) == 3 else (None, None, None)


def _tags_of(offsets: Sequence[tuple[int, int]], spans: Sequence[Span], text: str, where: str) -> tuple[list[str], int]:
    """Return the BIO tag of each word, and the number of spans that began or ended within a word."""
    tags, widened, last = ["O"] * len(offsets), 0, 0
    for start, end, label in spans:
        if start < last:
            raise ValueError(
                f"{where}: expected spans that do not overlap, got {text[start:end]!r:.40} within another: a tagger "
                "gives each word one tag"
            )
        last = end
        inside = [index for index, (first, stop) in enumerate(offsets) if first < end and stop > start]
        taken = [index for index in inside if tags[index] == "O"]
        if not taken:
            continue
        widened += offsets[taken[0]][0] < start or offsets[taken[-1]][1] > end
        for index in taken:
            tags[index] = ("B-" if index == taken[0] else "I-") + label
    return tags, widened
