"""The report of `chainrule inspect` on a model with a code, of images, of rows of a table or of sentences."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from markupsafe import Markup
from torch import Tensor

from chainrule.diagnostics import LatentUse
from chainrule_app.pages.page import Content, Figure, Group, Picture, Section, Table, Text, keys, marked
from chainrule_app.readers.images.source import Pixels

MOST_DIMENSIONS = 24  # in the table
# Told apart by most who see few colours, on a light and on a dark page (after Okabe and Ito 2008).
_COLOURS = (
    "#0072b2",
    "#d98c00",
    "#009e73",
    "#cc79a7",
    "#d55e00",
    "#56b4e9",
    "#a89a00",
    "#8c564b",
    "#7a52c7",
    "#6b8e23",
)
_OTHERS = "#888888"
_SIDE = 640.0  # units of the map's longer side
_MARGIN = 12.0


Exhibit = Pixels | Table


def principal_plane(points: Tensor) -> tuple[Tensor, tuple[float, float]]:
    """Project points (N, L) on their first two principal components, (N, 2); also return their shares of the variance.

    >>> plane, shares = principal_plane(torch.tensor([[0.0, 3.0], [0.0, -3.0], [1.0, 0.0], [-1.0, 0.0]]))
    >>> plane[:, 0], [round(share, 2) for share in shares]
    (tensor([ 3., -3.,  0.,  0.]), [0.9, 0.1])
    """
    centred = (points - points.mean(0)).double()
    _, values, directions = torch.linalg.svd(centred, full_matrices=False)
    shares = [*(values**2 / (values**2).sum().clamp_min(1e-30)).tolist(), 0.0, 0.0]
    directions = torch.cat([directions, directions.new_zeros(2, points.shape[1])])[:2]
    signs = directions.gather(1, directions.abs().argmax(1, keepdim=True)).sign()
    return (centred @ (directions * signs).t()).float() + 0.0, (shares[0], shares[1])


class Labels(NamedTuple):
    """Label of each input, and the name of the labels."""

    each: Sequence[str]
    name: str


def code_sections(
    use: LatentUse,
    noun: str,
    pairs: tuple[str, Exhibit],
    error: tuple[str, Exhibit],
    traversals: tuple[str, Mapping[int, Exhibit]],
    labels: Labels | None,
) -> list[Content]:
    rebuilt = [
        pairs[0],
        _exhibit(pairs[1], "images next to their reconstructions"),
        Markup("<h3>Where they are wrong</h3>"),
    ]
    wrong = [error[0], _exhibit(error[1], "mean squared error of each pixel")]
    strips = [
        Group("strip-row", [Text(f"dimension {index}"), _exhibit(strip, f"images along dimension {index}")])
        for index, strip in traversals[1].items()
    ]
    return [
        Section("How much of the code is in use", list(_use(use, noun)), "use"),
        Section("Reconstructions", [*rebuilt, *wrong], "reconstructions"),
        Section("Along each active dimension", [traversals[0], *strips], "traversals"),
        Section("A map of the codes", list(_map(use, noun, labels)), "map"),
    ]


def _exhibit(exhibit: Exhibit, description: str) -> Content:
    return exhibit if isinstance(exhibit, Table) else Picture(exhibit, description)


def _use(use: LatentUse, noun: str) -> Iterator[Content]:
    yield Text(str(use), "verdict")
    if use.remedies:
        yield "Remedies, in the order in which to try them:"
        yield marked("<ul>{}</ul>", Markup("").join(marked("<li>{}</li>", remedy) for remedy in use.remedies))
    information = (
        ""
        if use.kl is None
        else (f" Its KL divergence is the information that it gives the decoder, in nats per {noun} on average.")
    )
    yield (
        f"A dimension is active where the mean of its code varies from {noun} to {noun} by more than 0.01 "
        f"(Burda et al. 2016).{information}"
    )
    weight = use.variances if use.kl is None else use.kl
    dimensions = weight.argsort(descending=True, stable=True).tolist()[:MOST_DIMENSIONS]
    rows = [
        [
            str(index),
            *([] if use.kl is None else [f"{float(use.kl[index]):.3f}"]),
            f"{float(use.variances[index]):.4f}",
            "active" if use.active[index] else "",
        ]
        for index in dimensions
    ]
    yield Table(
        ["dimension", *([] if use.kl is None else ["KL, nats"]), "variance of the mean", ""], rows, named=True,
        shares=[float(weight[index] / weight.max().clamp_min(1e-12)) for index in dimensions], bar=-2, kind="barred",
        idle=[row for row, index in enumerate(dimensions) if not use.active[index]],
    )  # fmt: skip
    if len(weight) > len(dimensions):
        yield Text(f"{len(weight) - len(dimensions)} more dimensions, each with less.")


def _map(use: LatentUse, noun: str, labels: Labels | None) -> Iterator[Content]:
    plane, shares = principal_plane(use.codes)
    each = [""] * len(plane) if labels is None else labels.each
    colours = {} if labels is None else _colours(labels.each)
    points, height = _points(plane)
    how = "Colours are uniform, as the inputs have no labels."
    if labels is not None:
        how = f"Colours show the {labels.name}."
    yield (
        f"The codes of the {noun}s on their first two principal components, which hold {100 * shares[0]:.0f}% (across) "
        f"and {100 * shares[1]:.0f}% (up) of their variance; both axes in one scale. {how}"
    )
    dots = [
        marked('<circle cx="{}" cy="{}" r="4" fill="{}"/>', x, y, colours.get(label, _OTHERS))
        for (x, y), label in zip(points, each, strict=True)
    ]
    opening = '<svg viewBox="0 0 {} {}" role="img" aria-label="codes in two dimensions">'
    yield Figure([marked(opening, _SIDE, height) + Markup("").join(dots) + Markup("</svg>")], kind="map")
    if colours:
        yield keys((colour, label) for label, colour in colours.items())


def _colours(labels: Sequence[str]) -> dict[str, str]:
    """Assign colours to labels, to the first ones if there are many."""
    names = sorted(set(labels), key=lambda name: (not name.isdecimal(), name.zfill(9) if name.isdecimal() else name))
    return dict(zip(names, _COLOURS, strict=False))


def _points(plane: Tensor) -> tuple[list[tuple[float, float]], float]:
    """Place each code on the map, both axes in one scale; also return the height of the map."""
    low, high = plane.min(0).values, plane.max(0).values
    spans = (high - low).clamp_min(1e-9)
    scale = (_SIDE - 2 * _MARGIN) / float(spans.max())
    width, height = (float(span) * scale for span in spans)
    left = (_SIDE - width) / 2
    above = max(0.0, _SIDE / 8 - _MARGIN - height / 2)  # codes in a line are to be seen too
    bottom = above + height + _MARGIN
    points = [(round(left + x, 1), round(bottom - y, 1)) for x, y in ((plane - low) * scale).tolist()]
    return points, bottom + above + _MARGIN
