"""Plant faults in a copy of the code, one at a time, and see whether the tests of that file find them.

A fault changes one place: a sign, an index, a mask, a bound (off by one), an axis, a check that is dropped, or two
arguments that change places. The script finds such places itself and chooses the same ones every time (`--list`).
The tests that belong to a file are those that name it, or names that it defines, the most frequent first, without slow
ones; what survives them meets the tests of the files that import it. A fault is killed if one of these tests fails, and
the same test passes without the fault. A survivor is a gap in the tests, or a fault that nobody could notice: read it
before you write a test.

Every result is a line of `--out` at once. Started again, the script goes on where it was, and repeats what changed.
"""

import argparse
import ast
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path
from queue import Queue
from typing import Any

HOME = Path(__file__).resolve().parent.parent
COPIED = ("chainrule", "chainrule_app", "tests", "benchmarks", "examples", "conftest.py", "pyproject.toml", "README.md")
FILES = (
    # kernels
    "chainrule/kernels/_bptt.py", "chainrule/kernels/_cached_steps.py", "chainrule/kernels/_made_columns.py",
    "chainrule/kernels/_mixture_scan.py", "chainrule/kernels/_raster_convolutions.py",
    "chainrule/kernels/_recurrent.py", "chainrule/kernels/_scan.py",
    # layers
    "chainrule/layers/_adaptive_softmax.py", "chainrule/layers/_attention.py", "chainrule/layers/_causal_attention.py",
    "chainrule/layers/_cells.py", "chainrule/layers/_kneser_ney.py", "chainrule/layers/_masked_conv2d.py",
    "chainrule/layers/_packing.py", "chainrule/layers/_positions.py",
    # heads
    "chainrule/heads/_categorical.py", "chainrule/heads/_linear_chain_crf.py", "chainrule/heads/_logistic_mixtures.py",
    "chainrule/heads/_real_mixtures.py", "chainrule/heads/_table_column.py",
    # models
    "chainrule/models/_forecaster.py", "chainrule/models/_made.py", "chainrule/models/_ngram_lm.py",
    "chainrule/models/_pixel_cnn.py", "chainrule/models/_pixel_cnn_pp.py", "chainrule/models/_recurrent_lm.py",
    "chainrule/models/_seq2seq.py", "chainrule/models/_table_made.py", "chainrule/models/_vae.py",
    "chainrule/models/_wavenet.py",
    # what stands on the models
    "chainrule/coding/_range_coder.py", "chainrule/decoding/_beam_search.py", "chainrule/data/_windows.py",
    "chainrule/metrics/_bleu.py", "chainrule/metrics/_forecasting.py", "chainrule/training/_optimiser.py",
    # readers
    "chainrule_app/readers/labelled/labelled_file.py", "chainrule_app/readers/music.py",
    "chainrule_app/readers/pairs.py", "chainrule_app/readers/series/prepare.py",
    "chainrule_app/readers/sounds/sound_file.py", "chainrule_app/readers/store.py",
    "chainrule_app/readers/tables/column_schema.py", "chainrule_app/readers/tagged/conll_file.py",
    # the application
    "chainrule_app/frames.py", "chainrule_app/results.py", "chainrule_app/tasks/compression.py",
    "chainrule_app/tasks/container.py", "chainrule_app/tasks/size_schedule.py", "chainrule_app/tasks/table/task.py",
)  # fmt: skip
EACH = 2  # faults in a file, of different kinds
MOST_TESTS = 5  # test files that are run for a file
REDUCTIONS = {
    "sum",
    "mean",
    "softmax",
    "log_softmax",
    "logsumexp",
    "cumsum",
    "cat",
    "stack",
    "unsqueeze",
    "amax",
    "flip",
}
BOUNDS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">"}


@dataclass(frozen=True)
class Fault:
    """One changed place: `old` at an offset of a file becomes `new`."""

    path: str
    kind: str
    line: int
    start: int
    old: str
    new: str

    @property
    def key(self) -> str:
        """Name of the fault, the same until its file changes."""
        text = (HOME / self.path).read_bytes()
        return f"{self.path}:{self.line} {self.kind} {hashlib.sha256(text + str(self.start).encode()).hexdigest()[:8]}"

    def planted(self) -> str:
        """Return the text of the file with the fault."""
        text = (HOME / self.path).read_bytes()
        old = self.old.encode()
        assert text[self.start : self.start + len(old)] == old
        return (text[: self.start] + self.new.encode() + text[self.start + len(old) :]).decode()

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {' '.join(self.old.split())} → {' '.join(self.new.split())}"


def changes(node: ast.AST, source: Callable[[ast.AST], str]) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield the kind of a fault, the node that it replaces, and the source put in its place."""
    match node:
        case ast.BinOp(left, ast.Add() | ast.Sub(), right) if not _is_text(left) and not _is_text(right):
            other = "-" if isinstance(node.op, ast.Add) else "+"
            yield "sign", node, f"({source(left)} {other} ({source(right)}))"
        case ast.UnaryOp(ast.USub(), operand) if not isinstance(operand, ast.Constant):
            yield "sign", node, f"({source(operand)})"
        case ast.UnaryOp(ast.Invert(), operand):
            yield "mask", node, f"({source(operand)})"
        case ast.BinOp(left, ast.BitAnd(), right):
            yield "mask", node, f"({source(left)} | {source(right)})"
        case ast.Call(ast.Attribute(_, "tril" | "triu"), [*_, ast.Constant(int(diagonal)) as argument]):
            yield "mask", argument, str(diagonal + 1)
        case ast.Subscript(_, ast.Constant(int(index)) as place) if not isinstance(index, bool):
            yield "index", place, str(index + 1 if index >= 0 else 0)
        case ast.Compare(left, [ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() as bound], [right]):
            yield "off by one", node, f"({source(left)} {BOUNDS[type(bound)]} {source(right)})"
        case ast.Call(ast.Name("range"), [stop]):
            yield "off by one", stop, f"({source(stop)}) - 1"
        case ast.Call(ast.Attribute(_, name), [*_, ast.Constant(int(axis)) as argument]) if name in REDUCTIONS:
            yield "axis", argument, str(0 if axis else 1)
        case ast.keyword("dim" | "axis", ast.Constant(int(axis)) as argument):
            yield "axis", argument, str(0 if axis else 1)
        case ast.If(test, [ast.Raise()], []):
            yield "dropped check", test, f"False and ({source(test)})"
        case ast.Call(ast.Name("isinstance" | "issubclass"), _):
            return  # anybody would see it
        case ast.Call(_, [first, second, *_]) if _plain(first) and _plain(second) and source(first) != source(second):
            yield "swapped", first, f"{source(second)}, {source(first)}"  # `places` joins the two arguments


def _plain(node: ast.AST) -> bool:
    return isinstance(node, ast.Name | ast.Attribute)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr | ast.List | ast.Tuple) or (
        isinstance(node, ast.Constant) and not isinstance(node.value, int | float)
    )


def places(path: str) -> list[Fault]:
    """Return all faults that can be planted in a file."""
    content = (HOME / path).read_bytes()
    tree = ast.parse(content)
    lines = [0]
    for line in content.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def ends(first: Any, last: Any) -> slice:
        return slice(lines[first.lineno - 1] + first.col_offset, lines[last.end_lineno - 1] + last.end_col_offset)

    hidden = {
        id(part)  # annotations, defaults of messages and assertions are no behaviour
        for node in ast.walk(tree)
        for field in ("annotation", "returns", "exc", "msg")
        if isinstance(getattr(node, field, None), ast.AST)
        for part in ast.walk(getattr(node, field))
    }
    hidden |= {id(part) for node in ast.walk(tree) if isinstance(node, ast.Assert) for part in ast.walk(node)}
    parents = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found = []
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        for kind, part, new in changes(node, lambda part: content[ends(part, part)].decode()):
            last: Any = parents[id(part)]
            where = ends(part, last.args[1] if kind == "swapped" else part)
            old = content[where].decode()
            if "#" not in old and (kind != "swapped" or re.fullmatch(r"[\w.]+,\s*[\w.]+", old)):
                found.append(Fault(path, kind, content[: where.start].count(b"\n") + 1, where.start, old, new))
    return found


def chosen(path: str, each: int = EACH) -> list[Fault]:
    """Choose faults of different kinds, by a hash of what they change: the same ones on every machine."""
    order = sorted(places(path), key=lambda fault: hashlib.sha256(f"{path}{fault.kind}{fault.old}".encode()).digest())
    kinds: dict[str, Fault] = {}
    for fault in order:
        kinds.setdefault(fault.kind, fault)
    picked = list(kinds.values())[:each]
    return picked + [fault for fault in order if fault not in picked][: each - len(picked)]


@cache
def words() -> dict[str, tuple[str, Counter[str]]]:
    """Return the text of every test file, and how often it has each word, without underscores at its ends."""
    skipped = {"gpu", "fuzz", "pretend"}  # other machines, and other processes
    found = {}
    for file in sorted((HOME / "tests").rglob("test_*.py")):
        name = file.relative_to(HOME)
        if not skipped & set(name.parts):
            text = file.read_text(encoding="utf-8")
            found[str(name)] = text, Counter(word.strip("_") for word in re.findall(r"\w+", text))
    return found


@cache
def users(path: str) -> tuple[str, ...]:
    """Return the files that import a file."""
    line = re.compile(rf"from {re.escape(path.removesuffix('.py').replace('/', '.'))} import")
    files = [file for package in ("chainrule", "chainrule_app") for file in sorted((HOME / package).rglob("*.py"))]
    found = (file.relative_to(HOME) for file in files if line.search(file.read_text(encoding="utf-8")))
    return tuple(str(file) for file in found if file.name != "__init__.py" and str(file) != path)


@cache
def tests_of(path: str) -> list[str]:
    """Return the test files that belong to a file of the code: those that name it most, or that test its importers."""
    module, folders = path.removesuffix(".py").replace("/", "."), set(Path(path).parts)
    stem, near = Path(path).stem.strip("_"), {Path(user).stem.strip("_") for user in users(path)}
    tree = ast.parse((HOME / path).read_text(encoding="utf-8"))
    named = [node.name.strip("_") for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    rarity = {name: sum(name in counts for _, counts in words().values()) for name in named if len(name) > 3}
    score: Counter[str] = Counter()
    for test, (text, counts) in words().items():
        own = Path(test).stem.removeprefix("test_").removeprefix("compiled_")
        score[test] = 100 * (own == stem) + 30 * (module in text) + 20 * (own in near)
        # A word that is in many tests, such as `read`, says little.
        score[test] += int(sum(min(counts[name], 10) * 5 / count for name, count in rarity.items() if count))
        score[test] *= 2 if Path(test).parent.name in folders else 1
    contract = ["tests/test_contract.py"] if Path(path).parent.name == "models" else []
    best = [test for test, points in score.most_common(MOST_TESTS) if points]
    examples = [path] if ">>> " in (HOME / path).read_text(encoding="utf-8") else []
    return [*(test for test in best if test not in contract), *contract, *examples]


def wider_tests_of(path: str) -> list[str]:
    """Return test files of the files that import this one, or that import those, without its own."""
    score: Counter[str] = Counter()
    for user in users(path):
        for weight, file in [(3, user), *((1, other) for other in users(user))]:
            for place, test in enumerate(tests_of(file)[:MOST_TESTS]):
                score[test] += weight * (MOST_TESTS - place)
    others = [test for test, _ in score.most_common() if test not in tests_of(path) and test.startswith("tests/")]
    return others[:MOST_TESTS]


class Copy:
    """A copy of the code in which one fault at a time is planted."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        for name in COPIED:
            source = HOME / name
            if source.is_dir():
                shutil.copytree(source, self.folder / name, ignore=shutil.ignore_patterns("results", ".pytest_cache"))
            else:
                shutil.copy2(source, self.folder / name)

    def run(self, tests: list[str], seconds: float) -> tuple[int | None, str]:
        """Run tests up to the first failure; the status is None after so many seconds."""
        options = ["-q", "-x", "-p", "no:cacheprovider", "--no-header", "-rfE", "-m", "not slow and not gpu"]
        environment = os.environ | {"PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *options, *tests],
                cwd=self.folder, env=environment, capture_output=True, text=True, timeout=seconds,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return None, ""
        return done.returncode, done.stdout

    def judge(self, fault: Fault, seconds: float) -> dict[str, object]:
        """Plant a fault, run the tests that belong to its file, and remove it."""
        file, began = self.folder / fault.path, time.monotonic()
        file.write_text(fault.planted(), encoding="utf-8")
        try:
            for tests in filter(None, (tests_of(fault.path), wider_tests_of(fault.path))):
                status, out = self.run(tests, seconds)
                if status not in (0, 5):  # 5: no test was left
                    break
        finally:
            shutil.copy2(HOME / fault.path, file)  # with its old time, so that nothing is compiled again
        by = ""
        if status is None:
            verdict, by = "killed", f"no end after {seconds:.0f} s"
        elif status in (0, 5):
            verdict = "survived"
        else:
            failed = re.findall(r"^(?:FAILED|ERROR) ([^\s]+(?: [^-\s]\S*)*?)(?: - |$)", out, re.MULTILINE)
            by = failed[0] if failed else tests[0]
            again, _ = self.run([by], seconds)
            verdict = "killed" if again in (0, 5) else "unknown"  # it fails without the fault too
        return {
            "fault": str(fault), "kind": fault.kind, "verdict": verdict, "by": by, "tests": tests,
            "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip

    def remove(self) -> None:
        """Delete the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)


def table(rows: list[dict[str, object]]) -> str:
    """Return a Markdown table of the kinds, and the survivors below it."""
    kinds = sorted({str(row["kind"]) for row in rows})
    verdicts = ("killed", "survived", "unknown")
    lines = [f"| kind | {' | '.join(verdicts)} |", "| --- | --- | --- | --- |"]
    for kind in [*kinds, "all"]:
        counts = Counter(row["verdict"] for row in rows if kind in ("all", row["kind"]))
        lines.append(f"| {kind} | {' | '.join(str(counts[verdict]) for verdict in verdicts)} |")
    others = [f"- {row['verdict']}: {row['fault']}" for row in rows if row["verdict"] != "killed"]
    return "\n".join([*lines, "", *others])


def main() -> None:
    """Plant the faults that were not tried yet, and print the table of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="only faults whose line in --list holds this text")
    parser.add_argument("--every", type=int, default=1, help="only every so many faults: a sample (default: 1, all)")
    parser.add_argument("--each", type=int, default=EACH, help=f"faults in a file (default: {EACH})")
    parser.add_argument("--jobs", type=int, default=1, help="faults tried at once (default: 1)")
    parser.add_argument(
        "--seconds", type=float, default=900, help="longest run of the tests of one fault (default: 900)"
    )
    parser.add_argument("--out", type=Path, default=HOME / "build" / "mutants.jsonl", help="results, one a line")
    parser.add_argument("--table", type=Path, help="write the table to this file too")
    parser.add_argument("--list", action="store_true", help="print the faults and their tests, and plant none")
    arguments = parser.parse_args()
    ranks = zip_longest(*(chosen(path, arguments.each) for path in FILES))  # a run that ends early has seen every file
    faults = [fault for rank in ranks for fault in rank if fault is not None]
    faults = [fault for fault in faults if arguments.only in str(fault)][:: arguments.every]
    if arguments.list:
        for fault in faults:
            print(fault, "|", " ".join(tests_of(fault.path)))
        print(f"{len(faults)} faults in {len({fault.path for fault in faults})} files")
        return
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    lines = arguments.out.read_text(encoding="utf-8").splitlines() if arguments.out.exists() else []
    known = {row["key"]: row for row in map(json.loads, lines)}
    todo = [fault for fault in faults if fault.key not in known]
    copies: Queue[Copy] = Queue()
    made = [Copy() for _ in range(min(arguments.jobs, len(todo)))]
    for copy in made:
        copies.put(copy)

    def work(fault: Fault) -> None:
        copy = copies.get()
        row = {"key": fault.key, **copy.judge(fault, arguments.seconds)}
        known[fault.key] = row
        with open(arguments.out, "a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        print(f"{row['verdict']:<8} {row['seconds']:>6} s  {fault}  {row['by']}", flush=True)
        copies.put(copy)

    try:
        with ThreadPoolExecutor(arguments.jobs) as pool:
            list(pool.map(work, todo))
    finally:
        for copy in made:
            copy.remove()
    shown = table([known[fault.key] for fault in faults])
    print(f"\n{shown}")
    if arguments.table:
        arguments.table.write_text(f"{shown}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
