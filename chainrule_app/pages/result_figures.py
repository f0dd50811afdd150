"""Pictures of results, in ink on white: what `Result.plot` draws. Nothing heavy is imported before."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from math import ceil, isfinite, log
from typing import TYPE_CHECKING, Any, TypeVar

from chainrule.option_error import OptionError
from chainrule_app.heavy import figures, np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from chainrule_app.results import Result

T = TypeVar("T")
_LINE = 72  # characters
_MOST_SYMBOLS, _MOST_ROWS, _MOST_COLUMNS = 3000, 40, 24
_STRONG = 12 * log(2)  # nats that are drawn in full colour
_GLOW = "#d1242f"
_ODD, _MOST_ODD = 4.5, 10  # nats above the median, three standard deviations of a normal distribution; marks


def _axes(width: float, height: float) -> "tuple[Figure, Axes]":
    figure = figures.new_figure(width, height)
    figure.set_facecolor("white")
    axes: Axes = figure.add_subplot()
    return figure, axes


def _few(rows: Iterable[T], most: int, name: str) -> list[T]:
    """Return the rows; `OptionError` for none, or for more than a picture shows."""
    kept = list(rows)
    if not kept:
        raise OptionError("plot", f"expected at least one {name} to draw, got none")
    if len(kept) > most:
        raise OptionError(
            "plot", f"expected at most {most:,} {name}s to draw, got {len(kept):,}", "draw a part of them"
        )
    return kept


def surprise_figure(result: "Result") -> "Figure":
    """Draw a text, each symbol on a background as strong as its surprise; 12 bits and more are the strongest.

    Args:
        result: a row for each symbol, with its "text" and "nats".
    """
    rows = _few(result, _MOST_SYMBOLS, "symbol")
    placed, line, column = [], 0, 0
    for row in rows:
        token = str(row["text"])
        if column and column + len(token) > _LINE:
            line, column = line + 1, 0
        placed.append((line, column, token, float(row["nats"])))
        column += len(token)
        if token in ("\\n", "<eos>"):
            line, column = line + 1, 0
    width, height = max(column + len(token) for _, column, token, _ in placed), placed[-1][0] + 1
    figure, axes = _axes(0.084 * width + 0.3, 0.24 * height + 0.55)
    for line, column, token, nats in placed:
        strength = min(max(nats, 0.0) / _STRONG, 1.0) ** 2
        axes.fill_between(
            [column, column + len(token)], -line - 0.92, -line - 0.04, color=_GLOW, alpha=0.75 * strength, linewidth=0
        )
        for offset, character in enumerate(token):
            axes.text(
                column + offset + 0.5, -line - 0.5, " " if character == "␣" else _plain(character), color=figures.INK,
                family="monospace", size=9.5, ha="center", va="center",
            )  # fmt: skip
    total = sum(nats for *_, nats in placed) / log(2)
    axes.set_title(f"{len(rows):,} symbols, {total:,.1f} bits", loc="left", size=9, color=figures.MUTED)
    axes.set(xlim=(0, width), ylim=(-height, 0))
    axes.axis("off")
    return figure


def learning_figure(history: "Result") -> "Figure":
    """Draw nats per element of `Run.history` in training and validation by step, with the best validation."""
    figure, axes = _axes(6, 3)
    curves: dict[str, list[tuple[float, float]]] = {"step": [], "validation": []}
    best = None
    for record in history:
        nats = record.get("nats_per_element")
        if record.get("event") in curves and isinstance(nats, int | float) and isfinite(nats):
            curves[record["event"]].append((record["step"], nats))
            best = curves["validation"][-1] if record.get("best") else best
    if not any(curves.values()):
        raise OptionError("plot", "expected at least one record of training, got none")
    for event, name, colour, mark in (
        ("step", "training", figures.MUTED, ""),
        ("validation", "held out", figures.BLUE, "."),
    ):
        if curves[event]:
            axes.plot(*zip(*curves[event], strict=True), color=colour, marker=mark, linewidth=1.4, label=name)
    if best is not None:
        axes.plot(*best, "o", color=figures.ORANGE, label=f"best: {best[1]:.4f} at step {best[0]:,}")
    axes.set(xlabel="step", ylabel="nats per element")
    axes.legend(frameon=False, fontsize=8.5)
    figures.plain_axes(axes)
    return figure


def cells_figure(result: "Result") -> "Figure":
    """Draw a table with each cell on a background as strong as its "excess" over the median nats of its column."""
    kept, line = list(result), result.names[0]
    columns = list(dict.fromkeys(cell["column"] for cell in kept))
    names = _few(dict.fromkeys(cell[line] for cell in kept), _MOST_ROWS, "row")
    _few(columns, _MOST_COLUMNS, "column")
    rows = {name: number for number, name in enumerate(names)}
    figure, axes = _axes(1.2 + 1.25 * len(columns), 0.5 + 0.28 * len(rows))
    for cell in kept:
        x, y = columns.index(cell["column"]), rows[cell[line]]
        strength = min(max(float(cell["excess"]), 0.0) / 6, 1.0)
        axes.fill_between([x - 0.48, x + 0.48], y - 0.46, y + 0.46, color=_GLOW, alpha=0.75 * strength, linewidth=0)
        axes.text(x, y, _short(cell["cell"], 16), color=figures.INK, size=8.5, ha="center", va="center")
    axes.set_xticks(range(len(columns)), [_short(name, 18) for name in columns], size=8.5)
    axes.set_yticks(list(rows.values()), [_short(name, 12) for name in rows], size=8.5)
    axes.set(xlim=(-0.5, len(columns) - 0.5), ylim=(len(rows) - 0.5, -0.5))
    _without_frame(axes)
    return figure


def labels_figure(result: "Result") -> "Figure":
    """Draw the "probabilities" of the labels of each input as bars."""
    return _bars((str(row[result.names[0]]), row["probabilities"]) for row in result)


def _bars(rows: "Iterable[tuple[str, Mapping[str, float]]]") -> "Figure":
    """Draw the six greatest of each row's probabilities, a small picture for each row."""
    kept = _few(rows, _MOST_ROWS, "row")
    across = min(len(kept), 4)
    most = [sorted(shares.items(), key=lambda pair: -pair[1])[:6] for _, shares in kept]
    figure = figures.new_figure(2.1 * across, (0.42 + 0.19 * max(map(len, most))) * ceil(len(kept) / across))
    figure.set_facecolor("white")
    for number, ((name, _), shares) in enumerate(zip(kept, most, strict=True), 1):
        axes = figure.add_subplot(ceil(len(kept) / across), across, number)
        names, values = zip(*reversed(shares), strict=True)
        axes.barh(range(len(shares)), values, color=figures.BLUE, height=0.7)
        axes.set_yticks(range(len(shares)), [_short(label, 14) for label in names], size=8)
        axes.set_title(_short(name, 22), size=8.5, loc="left", color=figures.INK)
        axes.set(xlim=(0, 1), xticks=[])
        _without_frame(axes)
    return figure


def confusion_figure(evaluation: "Result") -> "Figure":
    """Draw how often each label, a row, was predicted as each, a column; shaded by the share of the row."""
    confusion = evaluation.summary.get("confusion", {})
    names = list(confusion)
    _few(names, _MOST_COLUMNS, "label")
    counts = np.array([[confusion[true][predicted] for predicted in names] for true in names], dtype=np.float64)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    figure, axes = _axes(1.6 + 0.42 * len(names), 1.2 + 0.32 * len(names))
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.4, aspect="auto")
    for (row, column), count in np.ndenumerate(counts):
        if count:
            axes.text(column, row, f"{count:.0f}", color=figures.INK, size=8.5, ha="center", va="center")
    short = [_short(name, 12) for name in names]
    upright = max(map(len, short)) <= 3
    axes.set_xticks(
        range(len(names)), short, size=8.5, rotation=0 if upright else 60, ha="center" if upright else "left"
    )
    axes.set_yticks(range(len(names)), short, size=8.5)
    axes.set(xlabel="predicted", ylabel="true")
    _without_frame(axes)
    axes.xaxis.set_label_position("top")
    return figure


def predicted_figure(result: "Result") -> "Figure":
    """Draw predicted cells: probabilities of categories, or values of numbers with their intervals."""
    kept, line = [{name: _as_float(cell) for name, cell in row.items()} for row in result], result.names[0]
    if all(cell["low"] is None for cell in kept):
        return _bars((f"{line} {cell[line]}: {cell['column']}", cell["shares"]) for cell in kept)
    numbers = [cell for cell in kept if isinstance(cell["low"], int | float) and isinstance(cell["value"], int | float)]
    columns = list(dict.fromkeys(cell["column"] for cell in numbers))
    _few(columns, _MOST_COLUMNS, "column of numbers")
    figure = figures.new_figure(6.5, 2.4 * len(columns))
    figure.set_facecolor("white")
    for number, column in enumerate(columns, 1):
        rows = [cell for cell in numbers if cell["column"] == column]
        axes, places = figure.add_subplot(len(columns), 1, number), range(len(rows))
        low, high = ([row[bound] for row in rows] for bound in ("low", "high"))
        axes.vlines(places, low, high, color=figures.BLUE, alpha=0.35, linewidth=5, label="interval")
        axes.plot(places, [row["value"] for row in rows], "_", color=figures.BLUE, markersize=9, label="predicted")
        if any(isinstance(row.get("actual"), int | float) for row in rows):
            actual = [row["actual"] if isinstance(row["actual"], int | float) else np.nan for row in rows]
            axes.plot(places, actual, ".", color=figures.ORANGE, label="actual")
        axes.set_title(_short(column, 40), size=9, loc="left", color=figures.INK)
        axes.set(xlabel="cell" if number == len(columns) else "")
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
        figures.plain_axes(axes)
    return figure


def _as_float(cell: Any) -> Any:
    """Return a decimal as a float, which axes take."""
    return float(cell) if isinstance(cell, Decimal) else cell


def series_figure(result: "Result", *, series: str) -> "Figure":
    """Draw the "value" of each series over the 80% that was expected, with the most surprising values marked.

    Args:
        result: a row for each value, in the order of time, with "low", "high" and "excess".
        series: the column that names the series.
    """
    own: dict[Any, list[Any]] = {}
    for row in result:
        own.setdefault(row[series], []).append(row)
    _few(own, _MOST_COLUMNS, "series")
    time = next(name for name in result.names if name != series)
    figure = figures.new_figure(8, 2.4 * len(own))
    figure.set_facecolor("white")
    for number, (name, rows) in enumerate(own.items(), 1):
        axes, places = figure.add_subplot(len(own), 1, number), range(len(rows))
        low, high, values = ([row[part] for row in rows] for part in ("low", "high", "value"))
        axes.fill_between(places, low, high, color=figures.BLUE, alpha=0.25, linewidth=0, label="80% expected")
        axes.plot(places, values, color=figures.INK, linewidth=1, label="value")
        odd = sorted((place for place in places if rows[place]["excess"] > _ODD), key=lambda one: -rows[one]["excess"])
        if odd := odd[:_MOST_ODD]:
            axes.plot(odd, [values[place] for place in odd], "o", color=_GLOW, markersize=5, label="surprising")
        times = [_short(str(row[time]).removesuffix(" 00:00:00"), 19) for row in rows]
        for place in odd[:3]:
            away = 7 if values[place] > high[place] else -13
            axes.annotate(
                times[place], (place, values[place]), (0, away), textcoords="offset points", fontsize=7.5, ha="center"
            )
        ticks = sorted({0, len(rows) // 2, len(rows) - 1})
        axes.set_xticks(ticks, [times[tick] for tick in ticks], size=8)
        axes.set_title(_short(name, 40), size=9, loc="left", color=figures.INK)
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="lower right", bbox_to_anchor=(1, 1))
        axes.margins(0.02, 0.15)
        figures.plain_axes(axes)
    return figure


def plane_figure(result: "Result") -> "Figure":
    """Draw vectors in the plane of their two greatest variances (principal components), coloured by "label" if any."""
    rows = list(result)
    if len(rows) < 3:
        raise OptionError("plot", f"expected at least 3 vectors to draw, got {len(rows)}")
    vectors = np.stack([np.asarray(row[result.main], dtype=np.float64).ravel() for row in rows])
    centred = vectors - vectors.mean(0)
    _, scales, directions = np.linalg.svd(centred, full_matrices=False)
    plane = centred @ directions[:2].T
    plane = np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))
    shares = np.pad(scales**2, (0, 2))[:2] / max(float((scales**2).sum()), 1e-300)
    figure, axes = _axes(5, 4)
    labels = (
        [str(row["label"]) for row in rows] if all(row.get("label") is not None for row in rows) else [""] * len(rows)
    )
    different = sorted(set(labels))
    for label in different[:10]:
        chosen = [place for place, own in enumerate(labels) if own == label]
        axes.scatter(plane[chosen, 0], plane[chosen, 1], s=14, alpha=0.75, label=_short(label, 20))
    if len(different) > 10:
        rest = [place for place, own in enumerate(labels) if own in different[10:]]
        axes.scatter(plane[rest, 0], plane[rest, 1], s=14, alpha=0.5, color=figures.MUTED, label="others")
    if len(different) > 1:
        axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    if len(rows) <= _MOST_ROWS:
        for row, place in zip(rows, plane, strict=True):
            axes.annotate(_short(row[result.names[0]], 16), place, (4, 2), textcoords="offset points", fontsize=8)
    axes.set(xlabel=f"{shares[0]:.0%} of the variance", ylabel=f"{shares[1]:.0%} of the variance")
    figures.plain_axes(axes)
    return figure


def _without_frame(axes: "Axes") -> None:
    axes.tick_params(length=0, colors=figures.INK)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if axes.get_ylim()[0] > axes.get_ylim()[1]:
        axes.xaxis.tick_top()


def _plain(text: str) -> str:
    return text.replace("$", r"\$")  # matplotlib would read it as mathematics


def _short(value: Any, width: int) -> str:
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return _plain(text if len(text) <= width else text[: width - 1] + "…")
