"""How long the command line takes to answer, as a whole process.

python benchmarks/speed_startup.py [--rounds 9]
"""

import argparse
import statistics
import subprocess
import sys

from side_by_side import claim, interleaved, publish


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    commands = {
        "chainrule --help": ["-m", "chainrule", "--help"],
        "chainrule train --help": ["-m", "chainrule", "train", "--help"],
        "python -c pass": ["-c", "pass"],
    }

    def answer(arguments: list[str]) -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    seconds = interleaved(
        {name: lambda arguments=arguments: answer(arguments) for name, arguments in commands.items()}, options.rounds
    )
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    rows = [{"command": name, "seconds": value} for name, value in medians.items()]
    publish("speed_startup", rows, [claim("`chainrule --help` answers", medians["chainrule --help"], "<=", 0.5, " s")])


if __name__ == "__main__":
    main()
