"""Sentences whose words tell their tags, and options of a small tagger."""

import random

SMALL = ("--hidden-size", 8, "--embedding-size", 8, "--character-size", 8, "--dropout", 0.0)
ENDINGS = {"ing": "VERB", "ness": "NOUN", "ful": "ADJ"}


def sentences(count, seed):
    """Words whose endings tell their tags; stems are new everywhere."""
    draw = random.Random(seed)
    for _ in range(count):
        row = []
        for _ in range(draw.randint(1, 6)):
            ending = draw.choice(list(ENDINGS))
            row.append(("".join(draw.choices("bdklmrst", k=3)) + ending, ENDINGS[ending]))
        yield [*row, (".", "PUNCT")]


def conllu(rows):
    for number, row in enumerate(rows):
        yield f"# sent_id = {number}"
        for place, (word, tag) in enumerate(row, 1):
            yield f"{place}\t{word}\t_\t{tag}\t{tag[:2]}\t_\t_\t_\t_\t_"
        yield ""


def columns(rows):
    for row in rows:
        yield from (f"{word}\t{tag}" for word, tag in row)
        yield ""
