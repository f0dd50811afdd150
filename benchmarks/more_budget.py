"""Held-out nats of tables by a short and by a long budget: more time should never hurt.

    python benchmarks/more_budget.py [--short 10] [--long 60] [--tables adult iris …] [--rows 3000] [--seed 0]

Each table is split once. A run trains on four fifths of its rows with each budget, in seconds, and scores the others in
nats a row. Tables: those of `../shared/data` (adult, wines, and the binary sets of MADE's paper as tables), those that
come with scikit-learn, and generated ones. `--rows` cuts long tables, so that start-up takes little of a short budget.
On a machine with other work, `python benchmarks/processor_clock.py 1 benchmarks/more_budget.py` counts processor time.
"""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas
from instead_target import customers, halves, read
from side_by_side import claim, report
from sklearn import datasets

import chainrule

TABLES = ("adult", "white wine", "red wine", "breast cancer", "iris", "wine", "diabetes", "nltcs", "dna", "churn")
TOLERANCE = 0.01  # of the nats a row, at least 0.05 nats: two trainings differ so much by their seed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    parser.add_argument("--short", type=float, default=10.0, help="seconds")
    parser.add_argument("--long", type=float, default=60.0, help="seconds")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    parser.add_argument("--rows", type=int, default=3000, help="of a table, at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.tables:
        table = whole(name, options.data, options.seed)
        if table is None:
            print(f"{name}: skipped, there is no such data under {options.data}", flush=True)
            continue
        train, unseen = halves(table.sample(min(len(table), options.rows), random_state=options.seed), options.seed)
        row: dict[str, Any] = {"table": name, "rows": len(train), "columns": table.shape[1]}
        for kind, budget in (("short", options.short), ("long", options.long)):
            began = time.monotonic()
            run = chainrule.fit(train, task="table", budget=budget, seed=options.seed)
            row |= {kind: float(np.mean(run.score(unseen)["nats"])), f"{kind} s": time.monotonic() - began}
        row["gain"] = row["short"] - row["long"]
        row["hurt"] = row["gain"] < -max(0.05, TOLERANCE * abs(row["short"]))
        rows.append(row)
        print(row, flush=True)
    if rows:
        hurt = sum(row["hurt"] for row in rows)
        report(rows, [claim(f"tables that {options.long:g} s made worse than {options.short:g} s", hurt, "<=", 0)])


def whole(name: str, data: Path, seed: int) -> pandas.DataFrame | None:
    """Return a table; None where its files are missing."""
    if name in ("iris", "wine", "diabetes"):
        bunch = getattr(datasets, f"load_{name}")(as_frame=True)
        labels = bunch.target if name == "diabetes" else bunch.target.map(lambda code: f"class {code}")
        return bunch.data.assign(target=labels)
    if name == "churn":
        return customers(4000, seed)
    if name in ("nltcs", "dna"):
        file = data / "uci_binary" / f"{name}.npz"
        if not file.is_file():
            return None
        binary = pandas.DataFrame(np.load(file)["train"].astype(int))
        return binary.rename(columns="c{}".format).replace({0: "no", 1: "yes"})
    if name != "breast cancer" and not (data / "tables").is_dir():
        return None
    return pandas.concat(read(name, data / "tables", seed), ignore_index=True)


if __name__ == "__main__":
    main()
