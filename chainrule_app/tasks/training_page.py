"""`chainrule report RUN`: learning curves, rates, gradients, throughput, samples, data and options as one page."""

import json
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from chainrule.figures import BLUE, GREEN, MUTED, ORANGE, new_figure
from chainrule.training import read_samples
from chainrule_app.pages.clipping import clipping
from chainrule_app.pages.page import (
    Content,
    Figure,
    Group,
    Page,
    Picture,
    Section,
    Table,
    Text,
    keys,
    marked,
    parts_section,
)
from chainrule_app.pages.plots import clipping_plot, draw_curves, inline_svg
from chainrule_app.printing import format_duration, quoted
from chainrule_app.recorded import SAMPLES, TIMINGS, read_timings
from chainrule_app.results import Report
from chainrule_app.tasks.model_size import count_parameters
from chainrule_app.tasks.output import page_report
from chainrule_app.tasks.parts import parts_of
from chainrule_app.tasks.run_directory import WEIGHTS
from chainrule_app.tasks.train_command import likeness, train_command

if TYPE_CHECKING:
    from chainrule_app.tasks.task import Task

_MOST_POINTS = 400  # of a curve; more are averaged
_MOST_SAMPLES = 12
_NO_CURVES = ("event", "step", "best", "warning", "elements", "rows", "nats_per_element", "bits_per_element")


def report_training(run: "Task[Any]") -> Report:
    """Build the page and figures about the training of a run."""
    records = run.metrics()
    steps = [record for record in records if record["event"] == "step"]
    validations = [record for record in records if record["event"] == "validation"]
    if not records:
        raise FileNotFoundError(f"{run.path}: no records of training yet: train the run first")
    entry, seconds = run.held_out(), run.seconds_trained()
    weights = run.path / WEIGHTS
    size = count_parameters(weights) if weights.is_file() else None
    figures: dict[str, Any] = {
        "task": run.name,
        "steps": records[-1]["step"],
        "elements": steps[-1]["elements"] if steps else None,
        "seconds": seconds,
        "parameters": size,
        "validations": len(validations),
        "best": None if entry is None else entry.values(),
        "command": train_command(run),
    }
    best = "no validation yet" if entry is None else f"{entry.nats / entry.elements:.4f} {entry.basis.per}"
    took = "" if seconds is None else f" in {format_duration(seconds)}"
    lines = [f"{records[-1]['step']:,} steps{took}, {len(validations)} validations", f"best validation: {best}"]
    facts = [["task", run.name], ["model", run.recipe]]
    facts += [["parameters", f"{size:,}"]] if size is not None else []
    facts += [["training", lines[0]], ["best validation", best]]
    facts += [["measured", str(entry)]] if entry is not None else []
    sections = [
        Section("", [Table(["", ""], facts, named=True)]),
        Section("Learning curves", [Group("plots", _curves(run, steps, validations))], "curves"),
        *([parts_section(parts_of(run.model()))] if size else []),
        *_samples(run.path / SAMPLES),
        Section("Data", [Table(["", ""], _data(run), named=True)], "data"),
        Section("Options", [Table(["option", "value", "section"], list(_options(run)), label="options")], "options"),
        *_again(run, figures["command"]),
    ]
    page = Page(f"Training of {run.path}", best, sections, f"chainrule report {quoted(run.path)}")
    return page_report(run, page, figures, lines, about=best)


def _again(run: "Task[Any]", command: str) -> Iterator[Section]:
    if command:
        content = marked("The command trains {}. <code>{}</code>", likeness(run.config), command)
        yield Section("Again", [content], "again")


def _curves(
    run: "Task[Any]", steps: Sequence[dict[str, Any]], validations: Sequence[dict[str, Any]]
) -> Iterator[Content]:
    per = run.basis.per.partition(",")[0]
    curves: list[Any] = [("", *_averaged(steps, "nats_per_element"), BLUE, "-")] if steps else []
    whole, part = _by_size(validations)
    curves += [("", *_points(whole, "nats_per_element"), ORANGE, "o-")] if whole else []
    below: list[Content] = [keys([("var(--blue)", "training"), ("var(--orange)", "validation")])]
    if part:
        curves.append(("", *_points(part, "nats_per_element"), MUTED, "x"))
        read, all_of_them = (record.get("elements", 0) for record in (part[-1], whole[-1]))
        below.append(
            Text(
                f"A cross is a validation on a part of the held-out data, {read:,} of {all_of_them:,} "
                f"{run.basis.unit}s: its height is that of the part, and it is compared with others on the part alone."
            )
        )
    yield _figure("loss", "Training and validation", per, curves, below)
    names = dict.fromkeys(name for record in validations for name in record if name not in _NO_CURVES)
    for name in names:
        points = [(record["step"], record[name]) for record in validations if record.get(name) is not None]
        if points and all(isinstance(value, int | float) for _, value in points):
            label = name.replace("_", " ")
            series = ("", *map(list, zip(*points, strict=True)), ORANGE, "o-")
            yield _figure(f"metric-{name}", f"Validation: {label}", label, [series])
    if not steps:
        return
    rate = _averaged(steps, "learning_rate")
    yield _figure("rate", "Learning rate", "learning rate", [("", *rate, GREEN, "-")])
    norms = clipping(steps, run.training.clip_norm)
    if norms is not None:
        yield clipping_plot(norms)
    timings = [record for record in read_timings(run.path / TIMINGS) if "training_elements_per_second" in record]
    if timings:
        points = [(record["step"], float(record["training_elements_per_second"])) for record in timings]
        series = ("", *map(list, zip(*points, strict=True)), BLUE, "o-")
        yield _figure("speed", "Throughput", f"{run.basis.unit}s per second", [series])


def _by_size(
    validations: Sequence[dict[str, Any]],
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Part the validations: those on as many elements as the largest, and those on fewer."""
    most = max((record.get("elements", 0) for record in validations), default=0)
    whole = [record for record in validations if record.get("elements", 0) == most]
    return whole, [record for record in validations if record.get("elements", 0) < most]


def _points(records: Sequence[dict[str, Any]], name: str) -> tuple[list[int], list[float]]:
    return [record["step"] for record in records], [record[name] for record in records]


def _averaged(records: Sequence[dict[str, Any]], name: str) -> tuple[list[float], list[float]]:
    """Average a figure over stretches of steps."""
    stretches = np.array_split(np.arange(len(records)), min(len(records), _MOST_POINTS))
    steps = [float(np.mean([records[index]["step"] for index in part])) for part in stretches]
    return steps, [float(np.mean([records[index].get(name, np.nan) for index in part])) for part in stretches]


def _figure(name: str, caption: str, unit: str, series: Any, below: Sequence[Content] = ()) -> Figure:
    figure = new_figure()
    draw_curves(figure.subplots(), series, "step of training", unit)
    svg = Markup(inline_svg(figure, name, f"{caption}: {unit} by step of training"))
    return Figure([svg], caption, below)


def _samples(path: Path) -> Iterator[Section]:
    """Show evenly chosen samples, including the last."""
    samples = read_samples(path)
    if not samples:
        return
    places = np.unique(np.linspace(0, len(samples) - 1, min(len(samples), _MOST_SAMPLES)).round().astype(int))
    chosen = [samples[index] for index in places]
    pictures = [(sample["step"], pixels) for sample in chosen if (pixels := _pixels(sample.get("png", ""))) is not None]
    if pictures:
        images = [Figure([Picture(pixels, f"samples at step {step}")], f"step {step:,}") for step, pixels in pictures]
        yield Section("Samples over time", [Group("images", images)], "samples")
        return
    rows = [[f"{sample['step']:,}", marked('<span class="sample">{}</span>', sample["text"])] for sample in chosen]
    yield Section("Samples over time", [Table(["step", "drawn from the model"], rows, label="samples")], "samples")


def _pixels(png: str) -> Any:
    if not png:
        return None
    try:
        from PIL import Image

        with Image.open(BytesIO(b64decode(png, validate=True)), formats=["PNG"]) as image:
            return np.asarray(image.convert("RGB"))
    except (Base64Error, ValueError, OSError):
        return None


def _data(run: "Task[Any]") -> list[list[Content]]:
    rows: list[list[Content]] = [["", line] for line in run.introduce()]
    for name, print_of in asdict(run.facts).items():
        if isinstance(print_of, dict) and "sha256" in print_of:
            rows.append([name, f"{print_of['name']}, {print_of['bytes']:,} bytes, SHA-256 {print_of['sha256']}"])
    return rows


def _options(run: "Task[Any]") -> Iterator[list[Content]]:
    config = run.config.to_json(run.name)
    sections = {"data": config["data"], "model": config["model"]["options"], "training": config["training"]}
    sections["computation"] = config["computation"] or {}
    for section, options in sections.items():
        for name, value in options.items():
            if name != "sources" and value is not None:
                yield [name, value if isinstance(value, str) else json.dumps(value), section]
