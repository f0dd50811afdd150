"""Keys of records are read by what they are called, in whatever order they stand."""

import json

import pytest

from chainrule_app.readers.gather import gathered
from chainrule_app.readers.record_keys import Keys, conversation, found_keys
from chainrule_app.readers.records import records
from chainrule_app.readers.sources import holds_records, is_table

pandas = pytest.importorskip("pandas")


def written(tmp_path, rows, kind, **keys):
    """What is read from a file of records."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    read = gathered(str(path), kind, found_keys(rows[0], kind, Keys(**keys), "a.jsonl record 1"))
    if kind == "pairs":
        return ["\t".join(row) for _, row in read]
    if kind == "tags":
        return [
            line
            for sentence in read.sentences
            for line in [*map("\t".join, zip(sentence.words, *[sentence.tags] * bool(sentence.tags), strict=True)), ""]
        ]
    return read.open().read().decode().splitlines()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("source", "target"), ("src", "tgt"), ("input", "output"), ("question", "answer"), ("prompt", "completion"),
        ("instruction", "response"), ("article", "summary"), ("source_text", "target_text"),
        ("sourceText", "targetText"),
        ("Source", "Target"), ("document", "note"), ("text", "translation"), ("src_en", "tgt_de"),
    ],
)  # fmt: skip
def test_a_source_is_what_is_called_one(tmp_path, source, target):
    for record in ({source: "one", target: "eins"}, {target: "eins", source: "one"}):
        more = {"id": "7", "source_lang": "en", "score": 0.5}
        assert written(tmp_path, [record, record | more], "pairs") == ["one\teins"] * 2


def test_languages_are_told_apart_by_name(tmp_path):
    """The order of keys was read: both languages were on both sides."""
    rows = [{"de": "eins", "en": "one"}, {"en": "two", "de": "zwei"}]
    assert written(tmp_path, rows, "pairs") == ["eins\tone", "zwei\ttwo"]
    nested = [{"id": "3", "translation": row} for row in rows]
    assert written(tmp_path, nested, "pairs") == ["eins\tone", "zwei\ttwo"]
    assert written(tmp_path, nested, "pairs", source="en", target="de") == ["one\teins", "two\tzwei"]
    assert written(tmp_path, nested, "pairs", source="en") == ["one\teins", "two\tzwei"]
    assert written(tmp_path, rows, "pairs", source="en", target="de", answers=False) == ["one", "two"]


@pytest.mark.parametrize(
    ("rows", "keys", "message"),
    [
        ([{"instruction": "a", "input": "b", "output": "c"}], {}, "may hold the source .instruction, input.: name one"),
        ([{"a": "a", "b": "b", "c": "c"}], {}, "got the keys a, b, c: name them with source_key and target_key"),
        ([{"source": "a", "target": "b"}, {"source": "a"}], {}, "record 2: expected a text under 'target', got none"),
        (
            [{"source": "a", "target": "b"}],
            {"source": "src"},
            "expected a text under 'src', got the keys source, target",
        ),
        ([{"source": 3, "n": 4}], {}, "expected two texts"),
    ],
)
def test_pairs_that_names_do_not_tell_are_asked_for(tmp_path, rows, keys, message):
    with pytest.raises(ValueError, match=message):
        written(tmp_path, rows, "pairs", **keys)


def test_tags_are_named_or_asked_for(tmp_path):
    """Of several lists the first usual name was read, whichever tags it had."""
    row = {"pos_tags": [1, 2], "ner_tags": ["O", "X"], "tokens": ["a", "b"], "id": "0"}
    with pytest.raises(ValueError, match=r"several keys hold tags \(pos_tags, ner_tags\): name one with tag_key"):
        written(tmp_path, [row], "tags")
    assert written(tmp_path, [row], "tags", tags="ner_tags") == ["a\tO", "b\tX", ""]
    assert written(tmp_path, [row], "tags", answers=False) == ["a", "b", ""]
    assert written(tmp_path, [{"kinds": ["O", "X"], "words": ["a", "b"]}], "tags") == ["a\tO", "b\tX", ""]
    with pytest.raises(ValueError, match="expected the lists tokens and upos, equally long"):
        written(tmp_path, [row], "tags", tags="upos")


def test_messages_are_read_as_a_conversation(tmp_path):
    """They were learned as raw JSON."""
    openai = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [{"type": "text", "text": "Hello"}]}]
    sharegpt = [{"from": "user", "value": "Hi"}, {"from": "assistant", "value": "Hello"}]
    rows = [{"messages": openai}, {"conversations": sharegpt}]
    assert written(tmp_path, rows, "text") == ["user: Hi", "assistant: Hello", ""] * 2
    assert not is_table(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match="'messages': expected messages with a role and a content, got 3"):
        written(tmp_path, [{"messages": [3]}], "text")


@pytest.mark.parametrize("sign", ["\\ud83d", "\\uDC00 a"])
def test_half_a_character_is_called_that(tmp_path, sign):
    """The error was of invalid UTF-8, in a file that is ASCII."""
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a \\ud83d\\ude00"}}\n{{"text": "a {sign}"}}\n')
    with pytest.raises(ValueError, match=r"a\.jsonl line 2: contains \\u...., half of a surrogate pair"):
        list(records(str(tmp_path / "a.jsonl")))


@pytest.mark.parametrize("orient", ["columns", "records", "split", "index", "table"])
def test_frames_written_as_json_are_records(tmp_path, orient):
    """They were read as prose."""
    frame = pandas.DataFrame({"x": [1, 2, 3], "name": ["a", "b", None]})
    frame.to_json(tmp_path / "a.json", orient=orient)
    found = [record for _, record in records(str(tmp_path / "a.json"))]
    assert found == [{"x": 1, "name": "a"}, {"x": 2, "name": "b"}, {"x": 3, "name": None}]
    assert is_table(tmp_path / "a.json")
    for index in (list("abcdefghijkl"), [f"2024-01-{day}T00:00:00.000" for day in range(10, 22)]):
        named = pandas.DataFrame({"x": range(12), "y": 1.5}, index=index)
        named.to_json(tmp_path / "b.json", orient=orient if orient != "records" else "columns")
        found = [record for _, record in records(str(tmp_path / "b.json"))]
        assert found == [{"index": index[row], "x": row, "y": 1.5} for row in range(12)]


def test_json_of_other_forms_is_no_records(tmp_path):
    path = tmp_path / "a.json"
    for text in (
        '{"a": 1, "b": {"c": 2}}',
        "[1, 2]",
        "[]",
        "prose",
        '{"a": {"x": 1}, "b": {"x": 2}}',
        '"a"',
        '{"a": 1\n}',
    ):
        path.write_text(text)
        assert not holds_records(path), text
    for text in ('{"x": 1}\n{"x": 2}\n', '[{"x": 1},\n {"x": 2}]', '{"version": 3, "data": [{"x": 1}, {"x": 2}]}'):
        path.write_text(text)
        assert [record for _, record in records(str(path))] == [{"x": 1}, {"x": 2}]
        assert holds_records(path)


def test_a_message_that_calls_a_tool_has_no_content():
    messages = [{"role": "assistant", "content": None, "tool_calls": []}, {"role": "tool", "content": "7"}]
    assert conversation(messages) == "assistant: \ntool: 7\n"
