"""Put the figures of benchmarks/results/*.json into the README and the manual.

    python benchmarks/tables.py

No figure in these tables is typed by hand, and the passages in `quotations` take their numbers from the results.
"""

import argparse
import json
import re
from pathlib import Path
from statistics import mean
from typing import Any

from bench import published
from side_by_side import shown

ROOT = Path(__file__).parent.parent
# docs/results.md begins with one figure of each of these, reached or missed: which claim, and what it means. The first
# two are points of the chart above them (charts.py).
HEADLINES = {
    "peers_text_0.5m": (0, "After half a minute on tiny Shakespeare, `chainrule train` is {} nats per character "
                            "ahead of the best plain LSTM script."),
    "peers_text_3m": (0, "After three minutes it is still {} nats per character ahead."),
    "peers_transformer_3m": (0, "A Transformer is {} nats per character ahead of a plain Transformer script by then."),
    "peers_tag_3m": (0, "The tagger makes {} times the errors of a plain BiLSTM tagger."),
    "peers_table_3m": (0, "The table model spends {} nats less on each row of the DNA data than a plain MADE script."),
    "quality_wide_avx2": (1, "On 2.5 million words the default has {} times the perplexity of Kneser-Ney 3-grams."),
    "quality_images_mnist": (0, "A PixelCNN reaches {} nats per image on binarized MNIST; the paper reports 81.30."),
    "peers_translate_10m": (0, "The translator scores {} BLEU more than a plain attention script after ten minutes."),
    "sampling": (9, "A gated PixelCNN draws 64 images in {} times the time that it takes to score them."),
}  # fmt: skip
# Pages of the manual that have all claims of the benchmarks whose names begin so.
PAGES = {
    "latent.md": "quality_latent_",
    "compression.md": "compression",
    "ngrams.md": ("quality_ngrams_", "speed_ngrams"),
    "forecasting.md": "quality_linear",
    "scaling.md": "ray_kills",
}
FOLDER = "results"  # of docs, with a page for each table
# Subjects of the results by the beginning of their names.
SUBJECTS = {
    "instead_": "beside what people use instead",
    "peers_": "beside plain scripts, in equal time",
    "quality_": "quality on public data",
    "compression_": "compression",
    "default_rule_": "default sizes beside the best of eight",
    "speed_": "speed",
    "sampling": "drawing beside scoring",
    "memory": "memory",
    "budget_use": "budgets kept",
    "ray_kills": "killed processes",
}
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
Result = dict[str, Any]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    write()


def write() -> None:
    """Write every page."""
    for path, text in pages().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


def pages() -> dict[Path, str]:
    """Every page that has figures of the results, with the figures that the results have now."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "benchmarks/results").glob("*.json"))}
    claims = {name: [claim_row(name, claim) for claim in result["claims"]] for name, result in results.items()}
    columns = ["what", "measured", "target", "reached"]
    docs = ROOT / "docs"
    written = {
        docs / page: filled(
            docs / page, table(columns, [row for name in claims if name.startswith(beginning) for row in claims[name]])
        )
        for page, beginning in PAGES.items()
    }
    top = [
        [f"{words.format(claims[name][number][1])} ([source]({FOLDER}/{name}.md))", *claims[name][number][2:]]
        for name, (number, words) in HEADLINES.items()
    ]
    everything = [row for rows in claims.values() for row in rows]
    speeds = ["what", "target", "measured", "processor and instruction set", "threads", "date"]
    written[docs / "results.md"] = filled(
        docs / "results.md",
        "\n\n".join(["## Ten that matter", table(["what", *columns[2:]], top), by_subject(results)]),
    )
    written |= {
        docs / FOLDER / f"{name}.md": page_of(title, content.replace(f"]({FOLDER}/", "]("))
        for name, title, content in (
            *((name, page_title(name), rows_of(result, claims[name])) for name, result in tabled(results)),
            ("instead", "Instead of what you use", instead_of(claims)),
            ("speeds", "Ten speeds, by processor", table(speeds, by_processor())),
            ("targets", "All targets", table(columns, everything)),
        )
    }
    written[docs / "classification.md"] = filled(
        docs / "classification.md", few_pictures(results["quality_picture_classifiers_few"])
    )
    for page, passages in quotations({name: result["rows"] for name, result in results.items()}).items():
        path = ROOT / page
        text = written.get(path) or path.read_text(encoding="utf-8")
        for passage, *values in passages:
            text = quoted(text, passage, values, page)
        written[path] = text
    return written


def tabled(results: dict[str, Result]) -> list[tuple[str, Result]]:
    """The results that have a page of their own; costs and growth, hundreds of points, are in docs/cost.md."""
    return [(name, result) for name, result in results.items() if name not in ("cost", "growth")]


def subject_of(name: str) -> tuple[str, str]:
    """The subject of a result and what its name adds to it, in words."""
    beginning = next(each for each in SUBJECTS if name.startswith(each))
    return SUBJECTS[beginning], title_of(name.removeprefix(beginning).removeprefix("_"))


def page_title(name: str) -> str:
    subject, rest = subject_of(name)
    return f"{subject}: {rest}" if rest else subject


def page_of(title: str, content: str) -> str:
    """A page of docs/results, which docs/results.md links and no sidebar lists."""
    return (
        f"---\norphan: true\n---\n\n# {title[0].upper()}{title[1:]}\n\n{content}\n\nAll results: [](../results.md).\n"
    )


def rows_of(result: Result, claims: list[list[str]]) -> str:
    """The targets and the rows of a result, and what measured them."""
    titles = list(dict.fromkeys(column for row in result["rows"] for column in row))
    rows = [[cell(row.get(title)) for title in titles] for row in result["rows"]]
    targets = [[re.sub(r"^\[(.*)\]\(.*\)$", r"\1", what), *others] for what, *others in claims]
    source = f"`{result['command']}`, {result['date']}, {machine(result)}."
    return "\n\n".join(
        [
            *([table(["target", "measured", "asked", "reached"], targets)] if targets else []),
            table(titles, rows),
            source,
        ]
    )


def by_subject(results: dict[str, Result]) -> str:
    """Links to the page of each result, a row for each subject, and how many of its targets are reached."""
    subjects: dict[str, list[str]] = {words: [] for words in SUBJECTS.values()}
    for name, _ in tabled(results):
        subjects[subject_of(name)[0]].append(name)
    rows = []
    for subject, names in subjects.items():
        met = [claim["met"] for name in names for claim in results[name]["claims"]]
        links = (f"[{subject_of(name)[1] or subject}]({FOLDER}/{name}.md)" for name in names)
        rows.append([subject, f"{sum(met)} of {len(met)}", " · ".join(links)])
    total = sum(len(result["claims"]) for result in results.values())
    lists = (
        f"[Instead of what you use]({FOLDER}/instead.md), [speeds by processor]({FOLDER}/speeds.md), "
        f"[all {total} targets]({FOLDER}/targets.md)."
    )
    return f"## Every table\n\n{table(['subject', 'targets reached', 'tables'], rows)}\n\n{lists}"


def instead_of(claims: dict[str, list[list[str]]]) -> str:
    """Every comparison with what people use instead."""
    rows = [
        [title_of(name).removeprefix("instead "), *row]
        for name, of_one in claims.items()
        if name.startswith("instead_")
        for row in of_one
    ]
    return table(["job", "set, figure and peer", "chainrule", "the peer's", "reached"], rows)


def quotations(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[tuple[Any, ...]]]:
    """Passages of pages by their file: {} stands for a number, whose values in their formats follow."""

    def column(name: str, title: str, **where: Any) -> list[Any]:
        return [row[title] for row in rows[name] if title in row and all(row.get(k) == v for k, v in where.items())]

    def ours(name: str, title: str) -> float:
        return float(mean(column(name, title, run="chainrule train")))

    sst2, transformer, fsdd = (
        column(f"quality_classification_{name}", "test %") for name in ("sst2", "sst2_transformer", "fsdd")
    )
    words, unseen = (column("quality_tagging_words", f"test accuracy {kind}%") for kind in ("", "of unknown words "))
    softmax, crf = (column("quality_tagging_entities", "test F1 %", head=head) for head in ("softmax", "crf"))
    nats = {
        head: mean(column("quality_tagging_entities", "test nats a word", head=head)) for head in ("softmax", "crf")
    }
    big, small = rows["quality_translation_transformer"][0], rows["quality_translation"][0]
    captioner, shuffled, prior = rows["quality_captions"]
    histogram, linear, wavenet = rows["quality_sound"]
    beam = {(row["search"], row["threads"]): row for row in rows["speed_beam_search"] if row["products"] == "bfloat16"}
    streams = rows["speed_streaming"]
    bleu = [f"BLEU-{n}" for n in range(1, 5)]

    def forecasts(name: str) -> list[str]:
        """The scores of the rows of a table, of whichever a row has."""
        formats = {"CRPS": "{:.4f}", "RMSE": "{:.3f}", "MAE": "{:.4f}", "in 80%": "{:.1%}", "in 50%": "{:.1%}"}
        found = (form.format(row[key]) for row in rows[name] for key, form in formats.items() if row[key] is not None)
        return [text.rstrip("%") for text in found]

    def three(values: list[float]) -> list[str]:
        return [f"{mean(values):.2f}", *(f"{value:.2f}" for value in values)]

    return {
        "README.md": [
            ("chainrule reaches {} nats per character in three minutes (AVX-512; {} with AVX2)",
             f"{ours('peers_text_3m', 'nats/char'):.2f}", f"{ours('peers_text_3m_avx2', 'nats/char'):.2f}"),
        ],
        "docs/captioning.md": [
            ("| captioner | {} | {} | {} | **{}** |", *(f"{captioner[n]:.1f}" for n in bleu)),
            ("| the same, shown another image | {} | {} | {} | {} |", *(f"{shuffled[n]:.1f}" for n in bleu)),
            ("| the same decoder, trained without images | {} | {} | {} | {} |", *(f"{prior[n]:.1f}" for n in bleu)),
            ("it writes {} different captions", f"{captioner['different captions']}"),
        ],
        "docs/classification.md": [
            ("test accuracy | {}, {}, {}% | {}% | 81% |", *(f"{v:.2f}" for v in sst2), f"{mean(sst2):.2f}"),
            ("3 epochs | {}, {}, {}% | {}% |", *(f"{v:.2f}" for v in transformer), f"{mean(transformer):.2f}"),
            ("official test accuracy | {}, {}, {}% | {}% |", *(f"{v:.2f}" for v in fsdd), f"{mean(fsdd):.2f}"),
        ],
        "docs/concepts.md": [
            *((f"| {words} | {{}} | {{}} | {{}} |", f"{row['plain steps/s']:,.0f}", f"{row['ours steps/s']:,.0f}",
               f"{row['ours ÷ products']:.2f}")
              for words, row in zip(("LSTM 256, 100 symbols", "LSTM 2 × 1024, 100 symbols"), streams, strict=False)),
            ("| 2 × LSTM 256 + 7-gram counts, 65 characters | {} | {} | |",
             f"{streams[2]['plain steps/s']:,.0f}", f"{streams[2]['ours steps/s']:,.0f}"),
            ("| Transformer 6 × 384, 65 characters | {} | {} | |",
             f"{streams[3]['plain steps/s']:,.0f}", f"{streams[3]['ours steps/s']:,.0f}"),
            ("| WaveNet, 20 layers of 64 channels | {} | {} | |",
             *(f"{rows['speed_wavenet'][0][key]:,.0f}" for key in ("samples/s", "stream samples/s"))),
        ],
        "docs/forecasting.md": [
            ("the models trained for {} and {} core minutes",
             *(f"{rows[f'quality_forecasting_{name}'][0]['core minutes']:.2f}" for name in ("exchange_rate", "ETTh1"))),
            *((f"({origins} origins).\n\n| forecast | CRPS | RMSE | MAE | in 80% | in 50% |\n"
               "| --- | ---: | ---: | ---: | ---: | ---: |\n"
               "| `Forecaster` | {} | {} | {} | {}% | {}% |\n| persistence | {} | {} | {} | | |\n"
               f"| persistence with its errors | {{}} | {{}} | {{}} | {{}}% | {{}}% |\n| seasonal-naive, {season} | "
               "{} | {} | {} | | |\n| seasonal-naive with its errors | {} | {} | {} | {}% | {}% |\n",
               *forecasts(f"quality_forecasting_{name}"))
              for name, origins, season in (("exchange_rate", 50, "5 days"), ("ETTh1", 120, "24 hours"))),
        ],
        "docs/made.md": [
            ("four have {} nats on the test images", f"{column('quality_tables_mnist', 'test nats')[0]:.2f}"),
        ],
        "docs/sound.md": [
            ("| histogram of levels | {} |", f"{histogram['test bits/sample']:.3f}"),
            ("| linear prediction of order 32, logistic residuals with an adaptive scale | {} |",
             f"{linear['test bits/sample']:.3f}"),
            ("| WaveNet of 20 layers, {} steps, {} core minutes | **{}** |", f"{wavenet['steps']:,}",
             f"{wavenet['core minutes']:.1f}", f"{wavenet['test bits/sample']:.3f}"),
            ("given the right digit it needs {} bits. In {}% of the recordings", f"{wavenet['digit told']:.3f}",
             f"{100 * wavenet['digits recognised']:.0f}"),
            *((f"| {row['batch']} | {{}} | {{}} | {{}} | {{}} | {{}} |",
               *(f"{row[key]:,.0f}" for key in ("step µs", "products µs", "queue µs", "recomputation µs")),
               f"{row['pass ratio']:.1f}") for row in rows["speed_wavenet"] if "step µs" in row),
        ],
        "docs/tagging.md": [
            ("| test accuracy | softmax | {}% | {}, {}, {} |", *three(words)),
            ("| test accuracy, unseen words | softmax | {}% | {}, {}, {} |", *three(unseen)),
            ("| test entity F1 | softmax | {}% | {}, {}, {} |", *three(softmax)),
            ("|  |  | CRF | {}% | {}, {}, {} |", *three(crf)),
            ("{} nats per word instead of {}.\n", f"{nats['crf']:.2f}", f"{nats['softmax']:.2f}"),
        ],
        "docs/translation.md": [
            *((f"| {model} | greedy | {{}} | {{}} | {{}} | {{}} |\n"
               "| | beam 5, length penalty 1 | {} | {} | {} | |",
               *(f"{row[key]:.2f}" for key in ("valid BLEU, greedy", "test BLEU, greedy", "test chrF2, greedy",
                 "test perplexity", "valid BLEU, beam 5", "test BLEU, beam 5", "test chrF2, beam 5")))
              for model, row in (("Transformer", big), ("GRU", small))),
            ("a greedy BLEU of {} in ten minutes, and a plain script reaches {} (",
             *(f"{rows['peers_translate_10m'][-1][key]:.1f}" for key in ("BLEU, greedy", "BLEU, greedy of the peer"))),
            ("translates the test set in {} s in batches of 250 sentences, and in {} s one sentence at a time",
             f"{beam['beam 5', 2]['batched s']:.1f}", f"{beam['beam 5', 2]['one at a time s']:.1f}"),
            ("On one thread it takes {} s and {} s, and greedy search takes {} s and {} s.",
             *(f"{beam[search, 1][key]:.1f}" for search in ("beam 5", "beam 1")
               for key in ("batched s", "one at a time s"))),
        ],
    }  # fmt: skip


def quoted(text: str, passage: str, values: list[str], page: str) -> str:
    """`text` with `values` for the numbers of its one passage that reads so; line breaks do not matter."""
    words = [r"\s+".join(map(re.escape, part.split(" "))) for part in passage.split("{}")]
    found = list(re.finditer(r"([\d.,]+)".join(words), text))
    if len(found) != 1 or len(values) != len(words) - 1:
        raise SystemExit(f"{page}: expected one passage {passage!r} with {len(values)} numbers, found {len(found)}")
    for number, value in reversed([*enumerate(values, start=1)]):
        text = text[: found[0].start(number)] + value + text[found[0].end(number) :]
    return text


def few_pictures(result: Result) -> str:
    """Test accuracy of each model by the number of training pictures: means over seeds, and the figure."""
    rows = result["rows"]
    models, counts = (list(dict.fromkeys(row[column] for row in rows)) for column in ("model", "pictures"))
    lines = []
    for count in counts:
        found = [
            [row["test %"] for row in rows if (row["model"], row["pictures"]) == (model, count)] for model in models
        ]
        lines.append([f"{count:,}", *(f"{mean(values):.1f}%" if values else "" for values in found)])
    parameters = {row["model"]: f"{row['parameters']:,}" for row in rows}
    lines.append(["parameters", *(parameters[model] for model in models)])
    seeds = len({row["seed"] for row in rows})
    return (
        f"{table(['training pictures', *(f'`{model}`' for model in models)], lines)}\n\n"
        f"Test accuracy, the mean of {seeds} seeds, {rows[0]['minutes']:g} min a run. `{result['command']}`, "
        f"{result['date']}, {machine(result)}.\n\n"
        "![Test accuracy of three classifiers by the number of pictures they were trained on](_static/few_pictures.png)"
    )


def by_processor() -> list[list[str]]:
    """Every measurement of the speeds that `make bench` repeats."""
    return [
        [what, row["target"], shown([each["value"]], row["unit"]), each["cpu"], str(each["threads"]), each["date"]]
        for what, row in published().items()
        for each in row["measurements"]
    ]


def claim_row(name: str, claim: dict[str, Any]) -> list[str]:
    met = "✓" if claim["met"] else "**missed**"
    return [f"[{claim['what']}]({FOLDER}/{name}.md)", claim["measured"], claim["target"], met]


def title_of(name: str) -> str:
    return name.replace("_", " ")


def threads(result: Result) -> str:
    count = result["machine"]["threads"]
    return f"{count} thread{'s' if count > 1 else ''}"


def machine(result: Result) -> str:
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


def filled(path: Path, content: str) -> str:
    """The text of a page with `content` between its marks."""
    before, rest = path.read_text(encoding="utf-8").split(BEGIN)
    return f"{before}{BEGIN}\n\n{content}\n\n{END}{rest.split(END)[1]}"


def replace(path: Path, content: str) -> None:
    path.write_text(filled(path, content), encoding="utf-8")


if __name__ == "__main__":
    main()
