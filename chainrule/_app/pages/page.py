"""A page as data: sections of paragraphs, tables and figures, which the templates of this folder render as HTML.

Everything from outside is escaped; nothing is fetched or run.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from chainrule._app.pages.read_text import visible
from chainrule.data import png
from chainrule.data._images.source import Pixels


class Part:
    """Anything on a page: `parts.html` has a macro for each kind, named `macro`."""

    macro: ClassVar[str]

    def __html__(self) -> str:
        return part(self.macro, self)


Content: TypeAlias = "str | Part"  # text is escaped, and a paragraph or a cell; `Markup` stays as it is


@dataclass(frozen=True)
class Text(Part):
    """A paragraph that is a note, a verdict or a legend."""

    text: str
    kind: str = "note"
    macro = "text"


@dataclass(frozen=True)
class Table(Part):
    """Rows of cells under headings."""

    headings: Sequence[str]
    rows: Sequence[Sequence[Content]]
    label: str = ""  # of a table that scrolls sideways, for those who do not see it
    named: bool = False  # whether the first cell of a row is its heading
    shares: Sequence[float] | None = None  # of each row, the length of a bar, from 0 to 1; None draws none
    bar: int = -1  # the cell before which the bar is drawn, as a place in a list
    idle: Sequence[int] = ()  # rows whose bars are pale
    kind: str = ""  # "barred" for narrow cells on a phone, "read" where Shades are cells
    macro = "table"


@dataclass(frozen=True)
class Shade(Part):
    """A cell that is the darker the greater a weight from 0 to 1."""

    weight: float
    macro = "shade"


@dataclass(frozen=True)
class Figure(Part):
    """Images under a caption, and text below them."""

    images: Sequence[Content]  # Pictures, or Markup of an SVG
    caption: str = ""
    below: Sequence[Content] = ()
    kind: str = ""  # "single" for one that is not in a Group, "pair" for two side by side
    macro = "figure"


@dataclass(frozen=True)
class Picture(Part):
    """Pixels (H, W), (H, W, 3) or places in a palette, each as large as a pixel of the screen at most."""

    pixels: Pixels  # of 8 bits
    description: str  # for those who do not see it
    palette: Pixels | None = None  # 256 colours
    filling: bool = False  # whether it is as wide as its figure
    macro = "picture"


@dataclass(frozen=True)
class Group(Part):
    """Parts in a box: `plots`, `heads` and `images` are grids of figures, `strip-row` a named strip."""

    kind: str
    parts: Iterable[Content]
    macro = "group"


@dataclass(frozen=True)
class Terms(Part):
    """Terms with their definitions, `rule-TERM` being the place of each that can be linked to."""

    terms: Mapping[str, str]
    linked: bool = False
    macro = "terms"


@dataclass(frozen=True)
class Section(Part):
    """A section; parts under a heading, or without one."""

    heading: str
    parts: Iterable[Content]
    name: str = ""
    macro = "section"


@dataclass(frozen=True)
class Page(Part):
    """A whole page, which needs nothing else, neither a network nor scripts."""

    title: str
    lead: str
    parts: Iterable[Content]
    command: str = ""  # makes the page again; empty where that is not said
    macro = "page"

    def __str__(self) -> str:
        """The same data give the same page; all that is no `Markup` is escaped."""
        return self.__html__()


def keys(colours: Iterable[tuple[str, str]]) -> Text:
    """A legend of CSS colours with their meanings."""
    key = Markup('<span class="key"><span class="swatch" style="background:{}"></span> {}</span>\n')
    return Text(Markup("").join(key.format(colour, named(meaning)) for colour, meaning in colours), "legend")


def parts_section(parts: dict[str, int]) -> Section:
    """Parameters of each part of a model, by name."""
    total = max(sum(parts.values()), 1)
    rows = [[name, f"{count:,}", f"{100 * count / total:.1f}%"] for name, count in parts.items()]
    return Section("Parts", [Table(["part", "parameters", "share"], rows)], "parts")


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
