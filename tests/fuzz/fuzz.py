"""Run mutated files and run directories through the command line and report what does not end as it should.

Usage: python tests/fuzz/fuzz.py [--cases 5000] [--seed 0] [--only NUMBER] [--subjects NAME...]

A command line may succeed, or end with status 2 and one line under 300 characters on standard error; a verb that looks
for failures may find one (status 1). A traceback, a crash, a hang, a longer or a second line, or a control character
that reaches the terminal is a failure. Each case depends on its seed and number alone.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from fuzz_mutations import mutate
from fuzz_subjects import SUBJECTS, Subject, write_data

LINE_LIMIT = 300
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]")


class Worker:
    """A child process that runs command lines; a new one after a crash."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def run(self, arguments: list[str]) -> dict[str, Any]:
        """How a command line ended, as `fuzz_worker.run` reports it."""
        if self._process is None:
            script = Path(__file__).with_name("fuzz_worker.py")
            self._process = subprocess.Popen(
                [sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(arguments) + "\n")
            process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            status = process.wait()
            self.close()
            return {"status": None, "out": "", "err": "", "failure": f"the process died with status {status}"}
        return json.loads(answer)

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@dataclass(frozen=True)
class Case:
    """One command line on damaged files.

    Args:
        number: which one.
        damage: what was done to which file.
        arguments: the command line.
        problem: what is wrong with how it ended; None where nothing is.
    """

    number: int
    damage: str
    arguments: list[str]
    problem: str | None


def prepare(home: Path, worker: Worker, names: list[str]) -> None:
    """Write the data, and train a run of each subject for two steps.

    Raises:
        RuntimeError: one of them cannot be trained, undamaged as it is.
    """
    (home / "data").mkdir()
    write_data(home / "data")
    for name in names:
        for line in (("train", *SUBJECTS[name].train, "--out", "{run}"), *SUBJECTS[name].made):
            answer = worker.run(_command(line, home / "data", home / name))
            if answer["status"] != 0:
                raise RuntimeError(f"{name}: {line[0]} of whole data ended with {answer}")


def run_cases(home: Path, worker: Worker, numbers: range, seed: int, names: list[str]) -> Iterator[Case]:
    """Damage a file, run a command line on it, judge; `prepare` was called with the same names."""
    for number in numbers:
        random = Random(f"{seed}/{number}")
        subject = SUBJECTS[random.choice(names)]
        case = home / "case"
        shutil.rmtree(case, ignore_errors=True)
        case.mkdir()
        if random.random() < 0.55:
            damage, arguments = _damaged_run(random, subject, home, case, names)
        else:
            damage, arguments = _damaged_data(random, subject, home, case)
        yield Case(number, damage, arguments, problem(worker.run(arguments)))


def problem(answer: dict[str, Any]) -> str | None:
    """What is wrong with how a command line ended; None where nothing is."""
    if answer["failure"] is not None:
        return answer["failure"]
    if CONTROL.search(answer["out"]) or CONTROL.search(answer["err"]):
        return f"a control character reached the terminal: {answer['out']!r:.300} {answer['err']!r:.300}"
    if answer["status"] in (0, 1):
        return None
    if answer["status"] != 2:
        return f"ended with status {answer['status']}: {answer['err']!r:.300}"
    lines = answer["err"].splitlines()
    errors = [line for line in lines if line.startswith("chainrule: ")]
    if len(errors) != 1 or lines[-1] != errors[0] or len(errors[0]) >= LINE_LIMIT:
        return f"expected one last line under {LINE_LIMIT} characters: {answer['err']!r:.600}"
    return None


def _damaged_run(random: Random, subject: Subject, home: Path, case: Path, names: list[str]) -> tuple[str, list[str]]:
    shutil.copytree(home / subject.name, case / "run")
    others = [part for part in (home / random.choice(names)).rglob("*") if part.is_file()]
    files = sorted(part for part in (case / "run").rglob("*") if part.is_file() and part.name != "timings.jsonl")
    file = random.choice(files)
    damage = mutate(random, file, sorted(others))
    return damage, _command(_reading(random, subject, file), home / "data", case / "run")


def _reading(random: Random, subject: Subject, file: Path) -> tuple[str, ...]:
    """A verb of the subject, mostly one that reads the file."""
    if random.random() < 0.3 or file.name in ("config.json", "model.safetensors", "vocabulary.json"):
        return random.choice(subject.verbs)
    word = "info" if file.name == "metrics.jsonl" and random.random() < 0.5 else "train"
    return random.choice([verb for verb in subject.verbs if verb[0] == word])


def _damaged_data(random: Random, subject: Subject, home: Path, case: Path) -> tuple[str, list[str]]:
    shutil.copytree(home / "data", case / "data")
    others = sorted(part for part in (home / "data").rglob("*") if part.is_file())
    damage = mutate(random, case / "data" / random.choice(subject.data), others)
    reading = [verb for verb in subject.verbs if any("{data}" in part for part in verb)]
    if reading and (subject.made or random.random() < 0.5):
        shutil.copytree(home / subject.name, case / "run")
        return damage, _command(random.choice(reading), case / "data", case / "run")
    return damage, _command(("train", *subject.train, "--out", "{run}"), case / "data", case / "run")


def _command(parts: tuple[str, ...], data: Path, run: Path) -> list[str]:
    return [part.format(data=data, run=run) for part in parts]


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the command line.")
    parser.add_argument("--cases", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, help="run this case alone and keep its files")
    parser.add_argument("--subjects", nargs="*", default=list(SUBJECTS), choices=list(SUBJECTS))
    asked = parser.parse_args()
    numbers = range(asked.cases) if asked.only is None else range(asked.only, asked.only + 1)
    home = Path(tempfile.mkdtemp(prefix="chainrule-fuzz-"))
    failed = 0
    with Worker() as worker:
        prepare(home, worker, asked.subjects)
        for case in run_cases(home, worker, numbers, asked.seed, asked.subjects):
            if case.problem is not None:
                failed += 1
                print(f"case {case.number}: {case.damage}: {' '.join(case.arguments)}\n{case.problem}\n", flush=True)
    print(f"{failed} of {len(numbers)} cases failed (seed {asked.seed})")
    if asked.only is None:
        shutil.rmtree(home)
    else:
        print(f"files: {home}")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
