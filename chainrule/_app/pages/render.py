"""HTML from the templates of this folder: everything from outside is escaped, nothing is fetched or run."""

from base64 import b64encode
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from chainrule._app.pages.read_text import visible
from chainrule.data import png

Pixels = npt.NDArray[np.uint8]


def part(macro: str, shown: Any) -> Markup:
    """The HTML that a macro of `parts.html` makes of a part; the same part gives the same HTML."""
    return Markup(getattr(_environment().get_template("parts.html").module, macro)(shown))


def marked(text: str, *values: object) -> Markup:
    """Text with tags and `{}` for values, which are escaped and made visible.

    >>> print(marked("<b>{}</b>", "a < b"))
    <b>a &lt; b</b>
    """
    return Markup(text).format(*map(named, values))


def named(value: object) -> object:
    """Text with visible signs for control characters; all else, and `Markup`, as it is."""
    return visible(value, blanks=False) if isinstance(value, str) and not hasattr(value, "__html__") else value


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
    environment.filters |= {"shown": visible, "named": named, "png": png_address}
    return environment
