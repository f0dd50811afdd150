"""Pages of HTML from the templates of this folder: everything from outside is escaped, nothing is fetched or run."""

from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from chainrule.data.images.png import png
from chainrule.diagnostics.report.read_text import visible

Pixels = npt.NDArray[np.uint8]


def render(template: str, **values: Any) -> str:
    """The page that a template makes of values; the same values give the same page."""
    return _environment().get_template(template).render(values)


def png_address(pixels: Pixels, palette: Pixels | None = None) -> str:
    """A PNG as an address that holds it: see `chainrule.data.images.png`."""
    return "data:image/png;base64," + b64encode(png(pixels, palette)).decode()


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"shown": visible, "named": lambda text: visible(text, blanks=False), "png": png_address}
    return environment
