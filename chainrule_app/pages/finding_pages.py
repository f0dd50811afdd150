"""Pages of findings that are figures alone: of tables, series, music, sounds, tags and labels."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from chainrule_app.pages.page import Content, Page, Section, Shade, Table, Text, parts_section

_MOST_SHADED = 40  # columns of a square of shades
_LEAST = 0.005  # nats by which a column informs about another


def barred(headings: Sequence[str], rows: Iterable[tuple[Sequence[str], float]], *, bar: int = 1) -> Table:
    """Build a table whose rows have bars: of each its cells, and the value that the bar is as long as."""
    listed = list(rows)
    most = max((value for _, value in listed), default=0.0) or 1.0
    shares = [min(max(value / most, 0.0), 1.0) for _, value in listed]
    return Table(headings, [cells for cells, _ in listed], named=True, shares=shares, bar=bar, kind="barred")


def table_page(figures: Mapping[str, Any], title: str, command: str) -> Page:
    """Show the nats of each column, and which earlier columns inform about it."""
    columns = figures["columns"]
    total = sum(column["nats"] for column in columns)
    rows = []
    for column in columns:
        told = sorted(column["told_by"].items(), key=lambda entry: -entry[1])
        by = ", ".join(f"{name} {nats:.3f}" for name, nats in told[:3] if nats >= _LEAST) or "none"
        rows.append(([column["column"], f"{column['nats']:.3f}", by], column["nats"]))
    parts: list[Content] = [
        Section(
            "How hard each column is to predict", [barred(["column", "nats", "informed by (nats)"], rows)], "columns"
        )
    ]
    if len(columns) <= _MOST_SHADED:
        most = max((nats for column in columns for nats in column["told_by"].values()), default=0.0) or 1.0
        names = [column["column"] for column in columns]
        shaded = [
            [column["column"], *(Shade(min(max(column["told_by"].get(name, 0.0) / most, 0.0), 1.0)) for name in names)]
            for column in columns
        ]
        square = Table(["", *names], shaded, "information of each column about later ones", named=True, kind="read")
        about = Text(f"The darkest cell is {most:.3f} nats. A column is predicted from those before it alone.")
        parts.append(Section("Which column informs about which", [square, about], "information"))
    return Page(title, f"{figures['rows']:,} rows, {total:.4f} nats a row.", parts, command)


def more_past(rows: Sequence[tuple[str, float]]) -> list[tuple[Sequence[str], float]]:
    """Add to the nats from more and more of the past what they are less than those from the least."""
    return [([name, f"{nats:.4f}", f"{rows[0][1] - nats:.4f}"], rows[0][1] - nats) for name, nats in rows]


def series_page(figures: Mapping[str, Any], title: str, command: str) -> Page:
    """Show what forecasts gain from the past, and from each column that is known in advance."""
    told = more_past([(f"{row['rows']:,}", row["nats_per_value"]) for row in figures["past"]])
    gains = sorted(figures["known"].items(), key=lambda entry: -entry[1])
    known = [([name, f"{nats:+.4f}"], nats) for name, nats in gains]
    table = barred(["rows of the past", "nats a value", "gain, nats"], told, bar=2)
    parts: list[Content] = [Section("What the past tells", [table], "past")]
    if known:
        said = Text("Each is shuffled in time: what a forecast loses is what it told.")
        table = barred(["without", "nats a value more"], known)
        parts.append(Section("What is known in advance", [table, said], "known"))
    lead = f"{figures['origins']:,} forecasts, {figures['nats_per_value']:.4f} nats a value."
    return Page(title, lead, parts, command)


def music_page(figures: Mapping[str, Any], title: str, command: str) -> Page:
    """Show what more of the past tells of the next frame."""
    told = more_past([(str(row["quarters"]), row["nats_per_frame"]) for row in figures["past"]])
    table = barred(["quarter notes before", "nats a frame", "gain, nats"], told, bar=2)
    return Page(title, f"{figures['frames']:,} frames.", [Section("What the past tells", [table], "past")], command)


def sound_page(figures: Mapping[str, Any], title: str, command: str) -> Page:
    """Show how far back samples influence the next one."""

    def row(what: str, samples: int) -> tuple[Sequence[str], float]:
        return [what, f"{samples:,}", f"{1000 * samples / figures['rate']:.1f}"], float(samples)

    rows = [
        row("by the architecture", figures["receptive_field"]),
        row("by derivatives", figures["reached"]),
        *(row(f"{float(share):.0%} of the influence", samples) for share, samples in figures["within"].items()),
    ]
    table = barred(["reach", "samples", "milliseconds"], rows)
    lead = f"Read at {figures['read']:,} samples of clips at {figures['rate']:,} Hz."
    return Page(title, lead, [Section("How far back the model hears", [table], "reach")], command)


def tag_page(figures: Mapping[str, Any], title: str, command: str) -> Page:
    """Show how certain a tagger is of its tags, and which neighbours it favours."""
    tags = [
        ([name, f"{row['words']:,}", f"{row['certainty']:.1%}"], row["certainty"])
        for name, row in figures["tags"].items()
    ]
    doubts = [
        [word["word"], f"{word['tag']} {word['probability']:.1%}", f"{word['or']} {word['its_probability']:.1%}"]
        for word in figures["least_sure"]
    ]
    parts: list[Content] = [
        Section("Certainty of each tag", [barred(["tag", "words", "certainty"], tags, bar=-1)], "tags"),
        Section("Least sure of", [Table(["word", "tag", "or"], doubts, named=True)], "doubts"),
    ]
    if figures["neighbours"] is not None:
        pairs = [
            [name, f"{pair['tag']} {pair['next']}", f"{pair['score']:+.2f}"]
            for name in ("favoured", "avoided")
            for pair in figures["neighbours"][name]
        ]
        parts.append(Section("Neighbouring tags", [Table(["", "tags", "score, nats"], pairs)], "neighbours"))
    read = figures["read"]
    certainty = f"{figures['certainty']:.1%} certain on average"
    lead = f"{read['sentences']:,} {read['source']}, {read['words']:,} words, {certainty}."
    return Page(title, lead, [*parts, parts_section(figures["parameters"])], command)


def label_page(figures: Mapping[str, Any], title: str, command: str) -> Page:
    """Show how certain a classifier is of its labels."""
    labels = [
        (
            [name, f"{row['texts']:,}", "" if row["certainty"] is None else f"{row['certainty']:.1%}"],
            row["certainty"] or 0,
        )
        for name, row in figures["labels"].items()
    ]
    table = barred(["label", "texts", "certainty"], labels, bar=-1)
    read = figures["read"]
    lead = f"{read['texts']:,} {read['source']}, {figures['certainty']:.1%} certain on average."
    parts = [Section("Certainty of each label", [table], "labels"), parts_section(figures["parameters"])]
    return Page(title, lead, parts, command)
