"""Rows, lines and labels that several processes answer, and the settings of small runs of them."""

from random import Random

import polars

TINY = {"steps": 2, "threads": 1, "precision": "float32", "plain": True}
SIZES = {"translate": {"model_size": 8, "num_layers": 1, "num_heads": 1}}
WORDS = ["one", "fish", "two", "fish", "red", "fish", "blue", "fish"]


def lines(number, seed=0):
    random = Random(seed)
    return [" ".join(random.choices(WORDS, k=random.randint(1, 9))) for _ in range(number)]


def table(number, seed=0):
    random = Random(seed)
    columns = {"count": [random.randrange(9) for _ in range(number)], "kind": random.choices("abc", k=number)}
    return polars.DataFrame(columns | {"heat": [round(random.gauss(50, 10), 2) for _ in range(number)]})


DATA = {
    "table": lambda: table(200),
    "text": lambda: lines(60),
    "tag": lambda: [[(word, word[0]) for word in line.split()] for line in lines(60)],
    "classify": lambda: [(line, len(line) // 20) for line in lines(60)],
    "translate": lambda: [(line, line.upper()) for line in lines(60)],
}
