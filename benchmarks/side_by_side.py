"""Time several ways of doing one piece of work by turns, and write down where the figures come from."""

import datetime
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from chainrule.devices import instruction_set


def interleaved(
    ways: dict[str, Callable[[], object]], rounds: int, warmup: int = 2, clock: Callable[[], float] = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each call, all ways once a round, so that a change in the machine's speed meets them all.

    Work of one thread may be timed by `time.process_time`, which other work on the machine disturbs less.
    """
    for _ in range(warmup):
        for way in ways.values():
            way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            start = clock()
            way()
            seconds[name].append(clock() - start)
    return seconds


def median_ratio(numerator: list[float], denominator: list[float]) -> float:
    """The median of the ratios round by round."""
    return statistics.median(n / d for n, d in zip(numerator, denominator, strict=True))


def operations(work: Callable[[], object]) -> int:
    """Multiplications and additions of the products and convolutions that a piece of work makes on tensors."""
    with _Counter() as counter:
        work()
    return counter.operations


class _Counter(TorchDispatchMode):
    """Unlike FlopCounterMode it hooks no module: a hook would keep models from their prepared weights."""

    operations = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation of torch, and count what it computes."""
        result = func(*args, **(kwargs or {}))
        operation = func.overloadpacket
        if operation in (torch.ops.aten.mv, torch.ops.aten.addmv):  # which torch has no formula for
            self.operations += 2 * args[0 if operation is torch.ops.aten.mv else 1].numel()
        elif operation in flop_registry:
            self.operations += flop_registry[operation](*args, **(kwargs or {}), out_val=result)
        return result


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    gpu = {"gpu": torch.cuda.get_device_name()} if torch.cuda.is_available() else {}
    return gpu | {
        "cpu": f"{model} ({instruction_set()})",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 1),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def claim(what: str, measured: float, sense: str, target: float, unit: str = "") -> dict[str, Any]:
    """One line of the results table: a figure beside what it had to be; `sense` is "<=" or ">="."""
    here = machine()
    measurement = {
        "value": measured,
        "met": measured <= target if sense == "<=" else measured >= target,
        "cpu": here["cpu"],
        "threads": here["threads"],
        "date": datetime.date.today().isoformat(),
    }
    sign = {"<=": "≤", ">=": "≥"}[sense]
    return over_processors({"what": what, "target": f"{sign} {target:g}{unit}", "unit": unit}, [measurement])


def duels(rows: list[dict[str, Any]], by: tuple[str, ...], senses: dict[str, str]) -> list[dict[str, Any]]:
    """A claim for each figure of rows that are equal in the columns `by`: chainrule's mean against the best other.

    `senses` has "<=" or ">=" for each figure; a row has its name in the column `who`.
    """
    claims = []
    for group in dict.fromkeys(tuple(row.get(column) for column in by) for row in rows):
        own = [row for row in rows if tuple(row.get(column) for column in by) == group]
        for figure, sense in senses.items():
            ours = [row[figure] for row in own if row.get(figure) is not None and row["who"] == "chainrule"]
            others = [(row[figure], row["who"]) for row in own if row.get(figure) is not None]
            others = [each for each in others if each[1] != "chainrule"]
            if ours and others:
                value, who = (max if sense == ">=" else min)(others)
                about = f"{', '.join(map(str, group))}: " if group else ""
                claims.append(claim(f"{about}{figure}; {who}", statistics.mean(ours), sense, value))
    return claims


def with_published(name: str, rows: list[dict[str, Any]], *keys: str) -> list[dict[str, Any]]:
    """The published rows that differ from each of these in one of some columns, and then these."""
    path = result_path(name)
    old = json.loads(path.read_text())["rows"] if path.exists() else []
    again = {tuple(map(row.get, keys)) for row in rows}
    return [row for row in old if tuple(map(row.get, keys)) not in again] + rows


def over_processors(row: dict[str, Any], measurements: list[dict[str, Any]]) -> dict[str, Any]:
    """A claim over its measurements: the range of their values, which must all reach the target."""
    measured = shown([each["value"] for each in measurements], row["unit"])
    met = all(each["met"] for each in measurements)
    return row | {"measured": measured, "met": met, "measurements": measurements}


def shown(values: list[float], unit: str) -> str:
    """A value, or the range of several."""
    ends = [f"{end:.4g}{unit}" for end in (min(values), max(values))]
    return " to ".join(dict.fromkeys(ends))


def with_other_processors(path: Path, claims: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The claims of a speed, with what is published of other processors, instruction sets and numbers of threads."""
    old = json.loads(path.read_text())["claims"] if path.exists() else []
    kept = {(row["what"], row["target"]): row.get("measurements", []) for row in old}
    merged = []
    for row in claims:
        new = row["measurements"]
        key = {(each["cpu"], each["threads"]) for each in new}
        others = [
            each for each in kept.get((row["what"], row["target"]), []) if (each["cpu"], each["threads"]) not in key
        ]
        merged.append(over_processors(row, [*others, *new]))
    return merged


def report(rows: list[dict[str, Any]], claims: list[dict[str, Any]]) -> None:
    """Print the rows as a table, the claims below it, and where the figures come from."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in table) for index in range(len(columns))]
    for line in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
    for row in claims:
        print(f"{'reached' if row['met'] else 'MISSED '}  {row['what']}: {row['measured']} (target {row['target']})")
    print(f"machine: {machine()}  date: {datetime.date.today().isoformat()}")


def publish(name: str, rows: list[dict[str, Any]], claims: list[dict[str, Any]]) -> None:
    """Report, and write `benchmarks/results/NAME.json`; `tables.py` puts it into the documentation.

    Args:
        name: of the script.
        rows: all that was measured.
        claims: the figures that had a target, as `claim` makes them.
    """
    path = result_path(name)
    if name.startswith(("speed_", "sampling")):
        claims = with_other_processors(path, claims)
    report(rows, claims)
    factor = os.environ.get("PROCESSOR_CLOCK")
    clock = [] if factor is None else ["benchmarks/processor_clock.py", factor]
    result = {
        "benchmark": name,
        "command": shlex.join(["python", *clock, "benchmarks/" + Path(sys.argv[0]).name, *sys.argv[1:]]),
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "rows": rows,
        "claims": claims,
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")


def result_path(name: str) -> Path:
    """The file of a published result; BENCHMARK_RESULTS names another folder than the published ones'."""
    return Path(os.environ.get("BENCHMARK_RESULTS", Path(__file__).parent / "results"), f"{name}.json")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
