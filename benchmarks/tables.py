"""Put the figures of benchmarks/results/*.json into docs/results.md and other pages.

    python benchmarks/tables.py

No figure in a table is typed by hand.
"""

import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
# docs/results.md begins with one figure of each of these, reached or missed: which claim, and what it means.
HEADLINES = {
    "peers_text_0.5m_avx2": (0, "After half a minute on tiny Shakespeare, `chainrule train` is {} nats a character "
                                "ahead of the best plain LSTM script."),
    "peers_text_3m": (0, "After three minutes it is still {} nats a character ahead."),
    "peers_transformer_3m": (0, "A Transformer is {} nats a character ahead of a plain Transformer script by then."),
    "peers_tag_3m": (0, "The tagger makes {} times the errors of a plain BiLSTM tagger."),
    "peers_table_3m": (0, "The table model spends {} nats less on a row of the DNA data than a plain MADE script."),
    "quality_wide_avx2": (1, "On 2.5 million words the default has {} times the perplexity of Kneser-Ney 3-grams."),
    "quality_images_mnist": (0, "A PixelCNN reaches {} nats an image on binarized MNIST; the paper reports 81.30."),
    "peers_translate_10m": (0, "The translator scores {} BLEU more than a plain attention script after ten minutes."),
    "compression": (0, "The adaptive compressor needs {} times the bytes of the best competitor, PPMd."),
    "sampling": (0, "Drawing an image from caches takes {} times the arithmetic of one likelihood pass."),
}  # fmt: skip
# Pages of the manual that have all figures of the benchmarks whose names begin so.
PAGES = {
    "latent.md": "quality_latent_",
    "compression.md": "compression",
    "ngrams.md": ("quality_ngrams_", "speed_ngrams"),
    "forecasting.md": "quality_linear",
}
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"


def main() -> None:
    results = [json.loads(path.read_text()) for path in sorted((ROOT / "benchmarks" / "results").glob("*.json"))]
    claims = {result["benchmark"]: [claim_row(result, claim) for claim in result["claims"]] for result in results}
    columns = ["what", "measured", "target", "", "command", "processor (instructions)", "date"]
    top = [(claims[name][number], words) for name, (number, words) in HEADLINES.items()]
    headlines = table(["", *columns[2:]], [[words.format(row[1]), *row[2:]] for row, words in top])
    for page, beginning in PAGES.items():
        shown = [row for name, rows in claims.items() if name.startswith(beginning) for row in rows]
        replace(ROOT / "docs" / page, table(columns, shown))
    summary = table(columns, [row for rows in claims.values() for row in rows])
    details = []
    for result in results:
        columns = list(dict.fromkeys(column for row in result["rows"] for column in row))
        rows = [[cell(row.get(column)) for column in columns] for row in result["rows"]]
        details.append(
            f"## {result['benchmark'].replace('_', ' ')}\n\n{table(columns, rows)}\n\n"
            f"`{result['command']}`, {result['date']}, {machine(result)}."
        )
    replace(
        ROOT / "docs" / "results.md",
        "\n\n".join(["## Ten that matter", headlines, "## All targets", summary, *details]),
    )
    if few := next((result for result in results if result["benchmark"] == "quality_picture_classifiers_few"), None):
        replace(ROOT / "docs" / "classification.md", few_pictures(few))


def few_pictures(result: dict[str, Any]) -> str:
    """Test accuracy of each model by the number of training pictures: means over seeds, and the figure."""
    rows = result["rows"]
    models, counts = (list(dict.fromkeys(row[column] for row in rows)) for column in ("model", "pictures"))
    lines = []
    for count in counts:
        found = [
            [row["test %"] for row in rows if (row["model"], row["pictures"]) == (model, count)] for model in models
        ]
        lines.append([f"{count:,}", *(f"{statistics.mean(values):.1f}%" if values else "" for values in found)])
    parameters = {row["model"]: f"{row['parameters']:,}" for row in rows}
    lines.append(["parameters", *(parameters[model] for model in models)])
    seeds = len({row["seed"] for row in rows})
    return (
        f"{table(['training pictures', *(f'`{model}`' for model in models)], lines)}\n\n"
        f"Test accuracy, the mean of {seeds} seeds, {rows[0]['minutes']:g} min a run. `{result['command']}`, "
        f"{result['date']}, {machine(result)}.\n\n"
        "![Test accuracy of four classifiers by the number of pictures they were trained on](_static/few_pictures.png)"
    )


def claim_row(result: dict[str, Any], claim: dict[str, Any]) -> list[str]:
    met = "reached" if claim["met"] else "**missed**"
    return [
        claim["what"], claim["measured"], claim["target"], met,
        f"`{result['command']}`", f"{result['machine']['cpu']}, {threads(result)}", result["date"],
    ]  # fmt: skip


def threads(result: dict[str, Any]) -> str:
    count = result["machine"]["threads"]
    return f"{count} thread{'s' if count > 1 else ''}"


def machine(result: dict[str, Any]) -> str:
    facts = result["machine"]
    card = f"{facts['gpu']}, " if "gpu" in facts else ""
    software = f"torch {facts['torch']}, Python {facts['python']}"
    return f"{card}{facts['cpu']}, {facts['cores']} cores, {threads(result)}, {software}"


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
