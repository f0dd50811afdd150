"""Spans of characters as annotation tools export them, and the words and tags that they mark."""

import json

import pytest

from chainrule_app.inputs import Inputs
from chainrule_app.readers.gather import gathered
from chainrule_app.readers.record_keys import Keys
from chainrule_app.readers.sources import kind_of
from chainrule_app.readers.tagged.spans import span_keys, spans_of, tagged_words, words_at

TEXT = "Ada Lovelace met Bo."
WORDS = ("Ada", "Lovelace", "met", "Bo", ".")
TAGS = ("B-PER", "I-PER", "O", "B-PER", "O")
SPANS = [[0, 12, "PER"], [17, 19, "PER"]]


def regions(*spans):
    return [{"value": {"start": start, "end": end, "text": "", "labels": [label]}} for start, end, label in spans]


def named(*names):
    return [dict(zip(names, span, strict=True)) for span in SPANS]


EXPORTS = {
    "doccano": {"id": 1, "text": TEXT, "label": SPANS, "Comments": []},
    "doccano with relations": {"text": TEXT, "entities": named("start_offset", "end_offset", "label"), "relations": []},
    "spaCy": {"text": TEXT, "ents": named("start", "end", "label"), "sents": [{"start": 0, "end": 20}], "spans": {}},
    "spaCy, groups of spans": {"text": TEXT, "ents": [], "spans": {"sc": named("start", "end", "label")}},
    "Label Studio": {"id": 1, "data": {"text": TEXT}, "annotations": [{"completed_by": 1, "result": regions(*SPANS)}]},
    "Prodigy": {"text": TEXT, "spans": named("start", "end", "label"), "tokens": [], "answer": "accept"},
    "two people, one key each": {"text": TEXT, "anna": SPANS, "bo": []},
    "Label Studio, short": {"text": TEXT, "label": [region["value"] for region in regions(*SPANS)], "annotator": 1},
}


@pytest.mark.parametrize("tool", EXPORTS)
def test_exports_of_annotation_tools_are_tags(tmp_path, tool):
    """They were read as texts, and with --task tag refused."""
    file = tmp_path / "a.json"
    file.write_text(json.dumps([EXPORTS[tool]] * 2))
    assert kind_of(file) == "tag"
    for data in (str(file), [EXPORTS[tool]] * 2):
        with Inputs("tag") as inputs:
            (first, second) = inputs.source(data).sentences
        assert (first.words, first.tags) == (second.words, second.tags) == (WORDS, TAGS)
        assert [TEXT[start:end] for start, end in first.offsets] == list(WORDS)
        assert inputs.options["spans"]


@pytest.mark.parametrize("form", ["spaCy 2", "an annotator with classes"])
def test_files_of_texts_with_entities_are_tags(tmp_path, form):
    """A list of them, as spaCy 2 trains on, was read as a text without a word."""
    pairs, file = [[TEXT, {"entities": SPANS}]] * 2, tmp_path / "a.json"
    file.write_text(json.dumps(pairs if form == "spaCy 2" else {"classes": ["PER"], "annotations": [*pairs, None]}))
    assert kind_of(file) == "tag"
    with Inputs("tag") as inputs:
        assert [sentence.tags for sentence in inputs.source(str(file)).sentences] == [TAGS] * 2


def test_pairs_of_a_text_and_its_entities_are_tags():
    with Inputs() as inputs:
        (first,) = inputs.source([(TEXT, {"entities": [tuple(span) for span in SPANS]})]).sentences
    assert (inputs.task, first.words, first.tags) == ("tag", WORDS, TAGS)


def test_words_of_the_tool_are_kept():
    record = {"text": "AdaLovelace", "ents": [{"start": 0, "end": 3, "label": "X"}]}
    tokens = [{"id": 0, "start": 0, "end": 3}, {"id": 1, "start": 3, "end": 11}]
    assert tagged_words(record | {"tokens": tokens}, "ents", "")[:2] == (["Ada", "Lovelace"], ["B-X", "O"])


def test_one_of_several_annotators_is_named():
    own = [("anna@x.org", SPANS[:1]), ("bo@x.org", SPANS[1:])]
    tasks = [{"completed_by": {"id": 1, "email": name}, "result": regions(*spans)} for name, spans in own]
    record = {"data": {"text": TEXT}, "annotations": [*tasks, {"was_cancelled": True, "result": []}]}
    with pytest.raises(ValueError, match=r"several annotators \(anna@x.org, bo@x.org\): name one with tag_key"):
        tagged_words(record, "annotations", "a.json record 1")
    assert tagged_words(record, "bo@x.org", "").tags == ["O", "O", "O", "B-PER", "O"]
    columns = {"text": TEXT, "spans": SPANS[:1], "entities": SPANS}
    with Inputs() as inputs, pytest.raises(ValueError, match=r"several keys hold tags \(entities, spans\): name one"):
        inputs.source([columns])
    with Inputs(keys=Keys(tags="spans")) as inputs:
        assert inputs.source([columns]).sentences[0].tags == ("B-PER", "I-PER", "O", "O", "O")


def test_a_text_without_spans_has_no_entities(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"text": TEXT, "label": []}) + "\n" + json.dumps(EXPORTS["doccano"]) + "\n")
    assert kind_of(file) == "tag"  # a file whose first text has no spans was a text
    first, second = gathered(str(file), "tags", Keys(tags="label", spans=True)).sentences
    assert (first.tags, second.tags) == (("O",) * 5, TAGS)
    assert span_keys({"text": TEXT, "label": "PER"}) == span_keys({"label": SPANS}) == []


def test_spans_within_words_are_widened_and_said(capsys):
    with Inputs("tag") as inputs:
        (held,) = inputs.source([{"text": "Yorkers sing", "label": [[0, 4, "LOC"]]}]).sentences
    assert held.tags == ("B-LOC", "O")
    assert "data: 1 spans that begin or end within a word are read as whole words" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        (
            [[0, 12, "PER"], [4, 12, "PER"]],
            "record 1: expected spans that do not overlap, got .Lovelace. within",
        ),
        ([[0, 99, "PER"]], "record 1: expected a span within 20 characters, got 0 to 99"),
        ([[3, 3, "PER"]], "got 3 to 3"),
        ([[0, 3, "PER"], "x"], r"record 1: expected spans such as \[0, 3, \"PER\"\] under 'label', got 'x'"),
    ],
)
def test_other_spans_are_refused(spans, message):
    with pytest.raises(ValueError, match=message):
        tagged_words({"text": TEXT, "label": spans}, "label", "record 1")


def test_spans_come_back_from_words():
    entities = [("PER", 0, 2), ("PER", 3, 4)]
    assert spans_of(entities, words_at(TEXT)) == SPANS
