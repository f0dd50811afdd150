"""Train a character model on the text built into Python, compare it with xz and bzip2, and write a page to look at.

python examples/demo.py [SECONDS]
"""

import bz2
import lzma
import math
import sys
from collections.abc import Callable
from pathlib import Path

import chainrule

RUN = Path("runs/demo")


def main(budget: str = "100s") -> None:
    """Train, compare, sample, write the page."""
    run = chainrule.fit(out=RUN, budget=budget, overwrite=True, validation_fraction=0.05)
    rows = compare()
    print("\nA sample of the model (chainrule sample runs/demo):\n")
    for piece in run.stream(length=400, temperature=0.8):
        print(piece, end="", flush=True)
    print(f"\n\nTo look at: {page(run, rows)} has samples from training, the learning curve, and a look inside.")
    print(f"To play with it in a browser: .venv/bin/chainrule serve {RUN} --open")


def page(run: chainrule.Run, rows: list[tuple[str, float, str]]) -> Path:
    """Write one page: the sizes, and below them the pages of the training and of an inspection."""
    run.report().save(RUN / "training.html")  # samples over time, learning curves
    run.inspect().save(RUN / "report.html")  # gradients, memory, gates, text coloured by surprise
    bits = "".join(f"<tr><th>{method}<td>{value:.3f}<td>{before}" for method, value, before in rows)
    frames = "".join(f'<iframe src="{name}.html" title="{name}"></iframe>' for name in ("training", "report"))
    path = RUN / "demo.html"
    path.write_text(
        '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark"><title>make demo</title>'
        "<style>body { font: 1rem/1.5 system-ui, sans-serif; margin: 1rem } th { text-align: left; font-weight: 400 }"
        " td { padding-left: 1.5em } iframe { width: 100%; height: 90vh; border: 1px solid #8888 }</style>"
        f"<h1>Bits for a character of held-out text</h1><table>{bits}</table>{frames}",
        encoding="utf-8",
    )
    return path


def compare() -> list[tuple[str, float, str]]:
    """Print the bits that each method needs for a character of the same held-out text."""
    from rich.console import Console
    from rich.table import Table

    training, held_out = parts_of_text()
    rows = [
        (method, bits / len(held_out), before)
        for method, bits, before in (
            ("chainrule, this model", model_bits(held_out), "trained on the other part"),
            ("xz -9e, primed", primed_bits(xz, training, held_out), "has read the same other part"),
            ("bzip2 -9, primed", primed_bits(bzip2, training, held_out), "has read the same other part"),
            ("xz -9e", 8 * xz(held_out), "sees nothing else"),
            ("bzip2 -9", 8 * bzip2(held_out), "sees nothing else"),
        )
    ]
    characters = len(training) + len(held_out)
    table = Table(title=f"The last {len(held_out):,} of {characters:,} characters, held out of training")
    table.add_column("method")
    table.add_column("bits/character", justify="right")
    table.add_column("before it")
    for method, bits, knowledge in rows:
        table.add_row(method, f"{bits:.3f}", knowledge)
    Console().print(table)
    print(
        "Model: its exact log-likelihood of every character in order, which an entropy coder reaches within a few\n"
        "bytes; its weights are not counted, as the programs of xz and bzip2 are not. Primed: the compressed size of\n"
        "training and held-out text together, less that of the training text. The held-out text also chose which\n"
        "weights to keep."
    )
    return rows


def parts_of_text() -> tuple[str, str]:
    """The built-in text as the run divided it: what the model trained on, and what it did not."""
    from chainrule_app import builtin_text, open_corpus

    text, corpus = builtin_text(), open_corpus(RUN / "data")
    size = len(corpus.valid)
    assert size + len(corpus.train) == len(text)
    assert (corpus.vocabulary.encode(text[-size:]) == corpus.valid.slice(0, size)).all()
    return text[:-size], text[-size:]


def model_bits(text: str) -> float:
    """-log2 p(text) under the run's best weights, every character predicted from all those before it."""
    from chainrule.data import StreamBatches
    from chainrule.training import bits, evaluate
    from chainrule_app import open_corpus

    corpus, model = open_corpus(RUN / "data"), chainrule.load(RUN).model
    nats = evaluate(model, StreamBatches.evaluation(corpus.valid, batch_size=1, chunk_length=1024)).nats
    unknown = int((corpus.vocabulary.encode(text) == corpus.vocabulary.unknown).sum())
    # Where the model says "some character never seen", which one it is costs a code point more.
    return bits(nats) + unknown * math.log2(sys.maxunicode + 1)


def xz(text: str) -> int:
    """Bytes of the text compressed by xz at its best."""
    return len(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def bzip2(text: str) -> int:
    """Bytes of the text compressed by bzip2 at its best."""
    return len(bz2.compress(text.encode(), 9))


def primed_bits(compressed: Callable[[str], int], training: str, held_out: str) -> float:
    """Bits that the held-out text adds to the compressed training text."""
    return 8.0 * (compressed(training + held_out) - compressed(training))


if __name__ == "__main__":
    main(*sys.argv[1:])
