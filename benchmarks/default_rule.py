"""The default options of a text model against a grid of settings: validation nats in the same minutes.

    python benchmarks/default_rule.py [--text shakespeare ...] [--minutes 1] [--avx2] [--data FOLDER] [--log FILE]

The rule of the text task (`tasks/text/plan.py`) settles what the user left open. Here it runs once, then each pair of
units and dropout with everything else left to it, one model each, where the rule may average several; all train for the
same minutes and are judged by the same held-out text.
The test parts are not read. The rule was fitted on shakespeare; the texts after python were never used for it:

    shakespeare  characters of tinyshakespeare/input.txt: the first 80%, the next 10% held out
    ptb          words of ptb/ptb.train.txt, ptb.valid.txt held out
    python       characters of the standard library's modules, every 20th module held out
    log          characters of a server's log (--log, else /var/log/dpkg.log), its last tenth held out
    russian      characters of Sphinx's messages in Russian, every 10th message held out

FOLDER is ../shared/data or the environment variable CHAINRULE_DATA; what is absent is skipped. A row is written as soon
as it is measured, and is not measured again when the script is started again.
"""

import argparse
import gzip
import json
import os
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from peer_tasks import chainrule
from peers import AVX2
from side_by_side import claim, machine, publish, result_path

RULE = "the rule"
SETTINGS = [(units, dropout) for units in (128, 256, 384, 640) for dropout in (0.0, 0.25)]
WITHIN = 1.02  # of the best of them
Parts = tuple[str, str]  # text to train on, and held out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", choices=TEXTS, nargs="+", default=list(TEXTS))
    parser.add_argument("--minutes", type=float, default=1)
    parser.add_argument("--avx2", action="store_true")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--log", type=Path, default=Path("/var/log/dpkg.log"))
    options = parser.parse_args()
    if options.avx2:  # before torch looks
        os.environ.update(AVX2)
    for text in options.text:
        try:
            parts = TEXTS[text](options)
        except (FileNotFoundError, ImportError) as error:
            print(f"{text}: skipped: {error}")
            continue
        compare(text, parts, options)


def compare(text: str, parts: Parts, options: argparse.Namespace) -> None:
    """Run the rule and the grid on one text, and publish after each run."""
    name = f"default_rule_{text}_{options.minutes:g}m" + ("_avx2" if options.avx2 else "")
    rows = measured(name)
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        for part, content in zip(("train.txt", "valid.txt"), parts, strict=True):
            (folder / part).write_text(content, encoding="utf-8")
        for setting in [None, *SETTINGS]:
            who = RULE if setting is None else f"{setting[0]} units, dropout {setting[1]:g}"
            if who in [row["run"] for row in rows]:
                continue
            asked = [] if setting is None else ["--hidden-size", setting[0], "--dropout", setting[1]]
            level = ["--level", "word"] if text == "ptb" else []
            run, budget = folder / "run", f"{60 * options.minutes:g}s"
            given = ["--validation", folder / "valid.txt", "--budget", budget, "--out", run, "--overwrite"]
            (summary,) = chainrule("train", folder / "train.txt", *level, *asked, *map(str, given))
            chosen = json.loads((run / "config.json").read_text())["model"]["options"]
            rows.append(
                {"run": who, "units": chosen["hidden_size"], "dropout": chosen["dropout"],
                 "models": chosen["num_members"], "steps": summary["steps"],
                 "elements/s": summary["elements"] / summary["seconds"], "held-out nats": summary["nats_per_element"]}
            )  # fmt: skip
            publish(name, rows, claims(text, rows, options.minutes))


def claims(text: str, rows: list[dict[str, Any]], minutes: float) -> list[dict[str, Any]]:
    """The nats of the rule over those of the best setting, once all were measured."""
    grid = [row["held-out nats"] for row in rows if row["run"] != RULE]
    if len(grid) < len(SETTINGS):
        return []
    what = f"{text}, {minutes:g} min: validation nats of the defaults ÷ best of {len(grid)} settings"
    (rule,) = (row["held-out nats"] for row in rows if row["run"] == RULE)
    return [claim(what, rule / min(grid), "<=", WITHIN)]


def measured(name: str) -> list[dict[str, Any]]:
    """The rows that are there, of such a processor and as many threads."""
    path = result_path(name)
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    return found["rows"] if found["machine"] == machine() else []


def shakespeare(options: argparse.Namespace) -> Parts:
    content = (options.data / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
    first, second = int(len(content) * 0.8), int(len(content) * 0.9)
    return content[:first], content[first:second]


def ptb(options: argparse.Namespace) -> Parts:
    train, valid = (
        gzip.decompress((options.data / "ptb" / f"ptb.{part}.txt.gz").read_bytes()).decode()
        for part in ("train", "valid")
    )
    return train, valid


def python(options: argparse.Namespace) -> Parts:
    modules = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return held_out([module.read_text(encoding="utf-8") for module in modules], 20)


def log(options: argparse.Namespace) -> Parts:
    lines = options.log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    cut = len(lines) * 9 // 10
    return "".join(lines[:cut]), "".join(lines[cut:])


def russian(options: argparse.Namespace) -> Parts:
    import sphinx
    from babel.messages.pofile import read_po

    with (Path(sphinx.__file__).parent / "locale" / "ru" / "LC_MESSAGES" / "sphinx.po").open("rb") as file:
        messages = [message.string for message in read_po(file) if isinstance(message.string, str) and message.string]
    return held_out([f"{message}\n" for message in messages], 10)


def held_out(pieces: list[str], one_in: int) -> Parts:
    """The pieces joined, and those of them joined that are held out."""
    train = "".join(piece for index, piece in enumerate(pieces) if index % one_in != one_in - 1)
    return train, "".join(pieces[one_in - 1 :: one_in])


TEXTS: dict[str, Callable[[argparse.Namespace], Parts]] = {
    function.__name__: function for function in (shakespeare, ptb, python, log, russian)
}


if __name__ == "__main__":
    main()
