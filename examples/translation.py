"""Translate numbers in words from German to English; the attention has to reverse what German reverses.

python examples/translation.py FOLDER [STEPS]

German says "vier und zwanzig" (four and twenty) for "twenty four". The script writes pairs of numbers from 1 to 999,999
into FOLDER/pairs.tsv, trains a translator on them, translates held-out numbers, and draws the attention of the first
one as FOLDER/attention.png.
"""

import sys
from pathlib import Path

import numpy as np

import chainrule

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
    run = chainrule.fit(
        folder / "pairs.tsv", task="translate", out=folder / "run", overwrite=True, steps=steps, model_size=64,
        num_layers=2, feed_forward_size=128, validation_fraction=0.01, label_smoothing=0.0,
    )  # fmt: skip
    print(run.evaluate(folder / "new.tsv"))
    answers = run.translate(folder / "new.de")
    print(answers)
    answers.plot().savefig(folder / "attention.png")


if __name__ == "__main__":
    example(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 600)
