"""Speed of preparing a text in two processes beside one, and the memory that it takes.

    python benchmarks/speed_prepare.py [--megabytes 200] [--repeats 2] [--levels word,bpe] [--text FILE]

The lines of a file (by default the text built into Python) are repeated in another order (seed 0) up to the size, and
prepared with one process and with two by turns. Where other programs share the cores, the seconds of a clock say
little: the ratio is computed from processor time, all processes together, as if the two had a core each.
"""

import argparse
import hashlib
import random
import resource
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from chainrule_app.readers import corpus
from chainrule_app.readers.help_topics import builtin_text


def processor_seconds() -> float:
    """Return the seconds of this process and of those that ended."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--levels", default="word,bpe")
    parser.add_argument("--text", type=Path)
    options = parser.parse_args()
    lines = (options.text.read_text() if options.text else builtin_text()).splitlines(keepends=True)
    with TemporaryDirectory() as folder:
        text, draw = Path(folder) / "text.txt", random.Random(0)
        with text.open("w") as file:
            while file.tell() < options.megabytes * 1_000_000:
                draw.shuffle(lines)
                file.writelines(lines)
        for level in options.levels.split(","):
            taken: dict[int, list[float]] = {1: [], 2: []}
            stores = set[str]()
            for _ in range(options.repeats):
                for number in (1, 2):
                    corpus.processes_for = lambda size, kind, number=number: number if number > 1 else 0
                    begin, clock = processor_seconds(), monotonic()
                    corpus.prepare_corpus(text, Path(folder) / "store", level=level)
                    taken[number].append(processor_seconds() - begin)
                    with (Path(folder) / "store" / "train.tokens").open("rb") as store:
                        stores.add(hashlib.file_digest(store, "sha256").hexdigest())
                    print(f"{level} {number}: {taken[number][-1]:.1f} s, {monotonic() - clock:.1f} s by the clock")
            assert len(stores) == 1
            one, two = (min(taken[number]) for number in (1, 2))
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
            size = text.stat().st_size / 1e6
            print(f"{level}: {size / one:.1f} MB a second, two processes ÷ one {2 * one / two:.2f}, peak {peak} MiB\n")


if __name__ == "__main__":
    main()
