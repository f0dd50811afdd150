"""What people use instead, beside chainrule with its defaults: the comparisons, and the first table of the results.

    python benchmarks/instead.py [--only labels target ...] [--again] [--data FOLDER]

Each job is a script `instead_JOB.py` that writes `results/instead_JOB.json`: its rows, and for each figure chainrule's
beside the best of the others. Jobs that have a result are left as they are, unless `--again` is given, so that this
goes on where it was. All together take some two hours of two cores. Then `tables.py` writes the pages.

    tables      one joint model answers every question about a table   scikit-learn: boosting, IterativeImputer
    target      one column of a table                                  scikit-learn: boosting
    anomalies   odd rows of ten tables                                 LOF, GMM, IsolationForest
    series      odd values of series                                   STL, IsolationForest
    logs        odd lines of logs                                      rare 5-grams, TF-IDF with IsolationForest
    labels      labels of texts                                        TF-IDF with logistic regression
    forecasts   series of different kinds                              statsforecast
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import tables
from side_by_side import result_path

HERE = Path(__file__).parent
JOBS: dict[str, list[str]] = {
    "tables": [],
    "target": ["--part", "test"],
    "anomalies": [],
    "series": [],
    "logs": [],
    "labels": ["--part", "test"],
    "forecasts": [],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--again", action="store_true", help="measure again what has a result")
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("CHAINRULE_DATA", "../shared/data")))
    options = parser.parse_args()
    for job in options.only:
        name = f"instead_{job}"
        script = HERE / f"{name}.py"
        if not script.is_file() or (result_path(name).is_file() and not options.again):
            continue
        print(f"{name} ...", flush=True)
        environment = os.environ | {"CHAINRULE_DATA": str(options.data)}
        subprocess.run([sys.executable, str(script), *JOBS[job]], env=environment, check=True)
    tables.write()


if __name__ == "__main__":
    main()
