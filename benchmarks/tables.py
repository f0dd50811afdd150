"""Put the figures of benchmarks/results/*.json into README.md and docs/results.md, between their markers.

    python benchmarks/tables.py

No figure in a table is typed by hand.
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def main() -> None:
    results = [json.loads(path.read_text()) for path in sorted((ROOT / "benchmarks" / "results").glob("*.json"))]
    claims = [
        [
            claim["what"],
            claim["measured"],
            claim["target"],
            "reached" if claim["met"] else "**missed**",
            f"`{result['command']}`",
            result["machine"]["cpu"],
            result["date"],
        ]
        for result in results
        for claim in result["claims"]
    ]
    summary = table(["what", "measured", "target", "", "command", "processor (instructions)", "date"], claims)
    machines = sorted({machine(result) for result in results})
    origin = "Machine: " + "; ".join(machines) + "."
    replace(ROOT / "README.md", f"{summary}\n\n{origin}")
    details = []
    for result in results:
        columns = list(dict.fromkeys(column for row in result["rows"] for column in row))
        rows = [[cell(row.get(column)) for column in columns] for row in result["rows"]]
        details.append(
            f"## {result['benchmark'].replace('_', ' ')}\n\n{table(columns, rows)}\n\n"
            f"`{result['command']}`, {result['date']}, {machine(result)}."
        )
    replace(ROOT / "docs" / "results.md", "\n\n".join([summary, *details]))


def machine(result: dict[str, Any]) -> str:
    facts = result["machine"]
    threads = f"{facts['threads']} thread{'s' if facts['threads'] > 1 else ''}"
    return f"{facts['cpu']}, {facts['cores']} cores, {threads}, torch {facts['torch']}, Python {facts['python']}"


def table(columns: list[str], rows: list[list[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def cell(value: Any) -> str:
    if value is None:  # rows of one table need not have the same columns
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "\\|")


def replace(path: Path, content: str) -> None:
    before, rest = path.read_text().split(BEGIN)
    path.write_text(f"{before}{BEGIN}\n\n{content}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
