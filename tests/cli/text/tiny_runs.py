"""Arguments of a tiny run, and what a directory holds."""

from pathlib import Path

TINY = ["--hidden-size", 8, "--batch-size", 2, "--chunk-length", 8, "--validation-fraction", 0.2]


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}
