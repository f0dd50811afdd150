"""A table with a column of texts is answered with the task that reads them before it is told to leave them out."""

import json
import random

import pytest

from chainrule_app.readers.tables.prepare import prepare_table

WORDS = [
    "the",
    "film",
    "was",
    "a",
    "long",
    "and",
    "slow",
    "story",
    "about",
    "people",
    "who",
    "love",
    "music",
    "but",
    "never",
    "dance",
    "in",
    "rain",
    "or",
    "snow",
]


def sentences(count, seed=0):
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for _ in range(count)]


def refused(tmp_path, rows, name="rows.tsv"):
    path = tmp_path / name
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match="column") as error:
        prepare_table(path, tmp_path / "made")
    return str(error.value)


@pytest.mark.parametrize("count", [25, 200, 900, 3000, 20_000])
@pytest.mark.parametrize("again", [0, 3])
def test_labelled_texts_of_all_sizes_are_told_apart_from_tables(tmp_path, count, again):
    """Of a file of 872 texts, one of them a single word, the texts were to be left out: types="column1=skip"."""
    texts = list(dict.fromkeys(sentences(2 * count)))[:count] + sentences(2 * count)[:1] * again
    told = refused(tmp_path, [(text, str(number % 2)) for number, text in enumerate(texts)])
    assert 'use task="classify" for texts with labels, leave it out with types="column1=skip"' in told


def test_pairs_and_lines_are_told_apart_from_tables(tmp_path):
    texts = list(dict.fromkeys(sentences(300)))
    pairs = zip(texts, reversed(texts), strict=True)
    assert 'use task="translate" for pairs of sentences' in refused(tmp_path, pairs)
    assert 'use task="text" with reading="lines" for lines of text' in refused(
        tmp_path, [(text,) for text in texts], "a.csv"
    )


def test_lists_and_objects_in_cells_are_no_categories(tmp_path):
    """They were learned as raw JSON, without a word."""
    rows = [{"x": number % 7, "tags": [number % 2], "box": {"a": number % 3}} for number in range(60)]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(ValueError, match=r"column .tags.: lists or objects in JSON.*types=.tags=skip.*1 more cannot"):
        prepare_table(path, tmp_path / "made")
    prepare_table(path, tmp_path / "made", types={"tags": "skip", "box": "categorical"})
