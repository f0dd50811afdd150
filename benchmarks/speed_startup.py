"""How long the command line takes to answer, as a whole process; of training, to its first line.

python benchmarks/speed_startup.py [--rounds 9]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from side_by_side import claim, interleaved, publish

ANSWERS = {
    "chainrule --help": (["--help"], 0.4),
    "chainrule train --help": (["train", "--help"], None),
    "chainrule train --hlep x (misspelt)": (["train", "--hlep", "x"], 0.4),
    "chainrule train missing.txt": (["train", "missing.txt"], 0.4),
    "chainrule sample missing": (["sample", "missing"], 0.4),
}
FIRST_LINE = "chainrule train FILE, first line"


def answer(arguments: list[str]) -> None:
    subprocess.run([sys.executable, *arguments], check=False, capture_output=True)


def first_line(folder: Path) -> None:
    """Begin to train, and stop after the first line."""
    command = [sys.executable, "-m", "chainrule", "train", folder / "poems.txt", "--out", folder / "run"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        assert process.stderr is not None
        process.stderr.readline()
        process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "poems.txt").write_text("It was a line.\n" * 1000)
        ways = {
            name: lambda arguments=arguments: answer(["-m", "chainrule", *arguments])
            for name, (arguments, _) in ANSWERS.items()
        }
        ways |= {FIRST_LINE: lambda: first_line(Path(folder)), "python -c pass": lambda: answer(["-c", "pass"])}
        seconds = interleaved(ways, options.rounds)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [{"command": name, "seconds": value} for name, value in medians.items()]
    limits = {name: limit for name, (_, limit) in ANSWERS.items() if limit is not None} | {FIRST_LINE: 1.0}
    publish(
        "speed_startup",
        rows,
        [claim(f"`{name}` answers", medians[name], "<=", limit, " s") for name, limit in limits.items()],
    )


if __name__ == "__main__":
    main()
