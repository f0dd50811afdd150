"""Files of ours that run code on the way from a text to a trained model to a sample.

    python benchmarks/path_length.py [--names]

Trains three steps on the text built into Python and draws a sample, with a profile of every call. A file counts if one
of its functions runs; importing it, and the bodies of its classes, do not.
"""

import argparse
import inspect
import sys
import tempfile
import threading
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType

LIMIT = 40


def files_that_run() -> set[str]:
    """Paths below chainrule/ of the files whose functions run."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & inspect.CO_OPTIMIZED and "/chainrule/" in code.co_filename:
            found.add(code.co_filename.rpartition("/chainrule/")[2])

    sys.setprofile(note)
    threading.setprofile(note)
    from chainrule_app.cli.main import main

    with tempfile.TemporaryDirectory() as folder, redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        run = str(Path(folder) / "run")
        for arguments in (["train", "--steps", "3", "--out", run], ["sample", run, "--length", "20"]):
            if status := main(arguments):
                raise SystemExit(f"{arguments[0]} failed with status {status}")
    sys.setprofile(None)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="print the files")
    options = parser.parse_args()
    found = files_that_run()
    if options.names:
        print("\n".join(sorted(found)))
    print(f"{len(found)} files run code from a text to a sample (limit {LIMIT})")


if __name__ == "__main__":
    main()
