"""Figures on disk."""

import io
from pathlib import Path
from typing import TYPE_CHECKING

from chainrule.data.atomic import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def save_figure(figure: "Figure", path: Path, dpi: float = 120) -> None:
    """Write a figure, whole or not at all, in the format that the name ends in.

    Raises:
        ValueError: matplotlib knows no such format.
    """
    content = io.BytesIO()
    figure.savefig(content, format=path.suffix.removeprefix(".").lower() or "png", dpi=dpi)
    write_bytes(path, content.getvalue())
