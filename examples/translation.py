"""Numbers in words, from German to English: a translator whose attention has to turn round what German turns round.

python examples/translation.py FOLDER [STEPS]

German says "vier und zwanzig", four and twenty, where English says "twenty four". Pairs of numbers from 1 to 999,999
are made and written as FOLDER/pairs.tsv; a translator is trained on them; numbers it has never seen are translated, and
FOLDER/attention.png shows which word came from where.
"""

import sys
from pathlib import Path

import numpy as np

from chainrule.cli.main import main

UNITS = {
    "de": "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf "
    "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn",
    "en": "zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen",
}
TENS = {
    "de": "- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig",
    "en": "- - twenty thirty forty fifty sixty seventy eighty ninety",
}
HUNDRED = {"de": "hundert", "en": "hundred"}
THOUSAND = {"de": "tausend", "en": "thousand"}


def words(number: int, language: str) -> str:
    """A number in words, which stand apart in both languages."""
    if number < 20:
        return UNITS[language].split()[number]
    if number < 100:
        tens, unit = TENS[language].split()[number // 10], words(number % 10, language)
        if number % 10 == 0:
            return tens
        return f"{unit} und {tens}" if language == "de" else f"{tens} {unit}"
    size, name = (1000, THOUSAND) if number >= 1000 else (100, HUNDRED)
    whole = f"{words(number // size, language)} {name[language]}"
    return whole if number % size == 0 else f"{whole} {words(number % size, language)}"


def example(folder: Path, steps: int) -> None:
    """Make the pairs, train, translate."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = np.random.default_rng(0).permutation(np.arange(1, 1_000_000))[:20_100].tolist()
    lines = [f"{words(number, 'de')}\t{words(number, 'en')}\n" for number in numbers]
    (folder / "pairs.tsv").write_text("".join(lines[:-100]))
    (folder / "new.tsv").write_text("".join(lines[-100:]))
    (folder / "new.de").write_text("".join(line.split("\t")[0] + "\n" for line in lines[:-4:-1]))
    run, small = str(folder / "run"), ["--model-size", "64", "--num-layers", "2", "--feed-forward-size", "128"]
    pairs = ["--task", "translate", "--validation-fraction", "0.01", "--label-smoothing", "0"]
    main(["train", str(folder / "pairs.tsv"), "--out", run, "--overwrite", "--steps", str(steps), *pairs, *small])
    main(["evaluate", run, str(folder / "new.tsv")])
    main(["translate", run, str(folder / "new.de"), "--plot", str(folder / "attention.png")])


if __name__ == "__main__":
    example(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 600)
