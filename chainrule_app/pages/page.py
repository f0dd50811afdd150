"""A page as data: sections of paragraphs, tables and figures, which the templates of this folder render as HTML.

Everything from outside is escaped; nothing is fetched or run.
"""

import unicodedata
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from chainrule_app.readers.images.source import Pixels, png


class Part:
    """Part of a page, rendered by the macro of `parts.html` named `macro`."""

    macro: ClassVar[str]

    def __html__(self) -> str:
        return part(self.macro, self)


Content: TypeAlias = "str | Part"  # text is escaped, and a paragraph or a cell; `Markup` stays as it is


@dataclass(frozen=True)
class Text(Part):
    """Paragraph that is a note, a verdict or a legend."""

    text: str
    kind: str = "note"
    macro = "text"


@dataclass(frozen=True)
class Table(Part):
    headings: Sequence[str]
    rows: Sequence[Sequence[Content]]
    label: str = ""  # accessible label of a table that scrolls sideways
    named: bool = False  # the first cell of a row is its heading
    shares: Sequence[float] | None = None  # bar length per row, from 0 to 1; None draws no bars
    bar: int = -1  # index of the cell after the bar
    idle: Sequence[int] = ()  # rows with pale bars
    kind: str = ""  # "barred" for narrow cells on a phone, "read" for cells with Shades
    macro = "table"


@dataclass(frozen=True)
class Shade(Part):
    """Cell shaded by a weight from 0 to 1."""

    weight: float
    macro = "shade"


@dataclass(frozen=True)
class Figure(Part):
    """Images under a caption, with text below them."""

    images: Sequence[Content]  # Pictures, or SVG Markup
    caption: str = ""
    below: Sequence[Content] = ()
    kind: str = ""  # "single" outside a Group, "pair" for two side by side
    macro = "figure"


@dataclass(frozen=True)
class Picture(Part):
    """Pixels (H, W), (H, W, 3) or palette indices, drawn at most at their own size."""

    pixels: Pixels  # 8 bits per channel
    description: str  # alternative text
    palette: Pixels | None = None  # 256 colours
    filling: bool = False  # as wide as its figure
    macro = "picture"


@dataclass(frozen=True)
class Group(Part):
    """Box of parts: `plots`, `heads` and `images` are grids of figures, `strip-row` a named strip."""

    kind: str
    parts: Iterable[Content]
    macro = "group"


@dataclass(frozen=True)
class Terms(Part):
    """Terms with definitions; if `linked`, each has the anchor `rule-TERM`."""

    terms: Mapping[str, str]
    linked: bool = False
    macro = "terms"


@dataclass(frozen=True)
class Section(Part):
    heading: str
    parts: Iterable[Content]
    name: str = ""
    macro = "section"


@dataclass(frozen=True)
class Page(Part):
    """Whole page that needs neither a network nor scripts."""

    title: str
    lead: str
    parts: Iterable[Content]
    command: str = ""  # command that makes the page again, if any
    macro = "page"

    def __str__(self) -> str:
        """Render the page; equal data give equal pages."""
        return str(self.__html__())  # no Markup, which would be escaped twice where it is escaped


def keys(colours: Iterable[tuple[str, str]]) -> Text:
    """Build a legend of CSS colours."""
    key = Markup('<span class="key"><span class="swatch" style="background:{}"></span> {}</span>\n')
    return Text(Markup("").join(key.format(colour, named(meaning)) for colour, meaning in colours), "legend")


def parts_section(parts: dict[str, int]) -> Section:
    """List the parameters of each part of a model."""
    total = max(sum(parts.values()), 1)
    rows = [[name, f"{count:,}", f"{100 * count / total:.1f}%"] for name, count in parts.items()]
    return Section("Parts", [Table(["part", "parameters", "share"], rows)], "parts")


def part(macro: str, content: Any) -> Markup:
    """Render a part with its macro of `parts.html`."""
    return Markup(getattr(_environment().get_template("parts.html").module, macro)(content))


def marked(text: str, *values: object) -> Markup:
    """Fill `{}` in markup with escaped, visible values."""
    return Markup(text).format(*map(named, values))


def named(value: object) -> object:
    """Make control characters visible; leave `Markup` and other values alone."""
    return visible(value, blanks=False) if isinstance(value, str) and not hasattr(value, "__html__") else value


def png_address(pixels: Pixels, palette: Pixels | None = None) -> str:
    """Encode pixels as a data URL of a PNG."""
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


def visible(text: str, *, blanks: bool = True) -> str:
    """Make control characters, lone combining marks and blanks visible."""
    return "".join(map(_visible_blank if blanks else _visible, text))


def _visible_blank(character: str) -> str:
    return "␣" if character == " " else _visible(character)


def _visible(character: str) -> str:
    kind = unicodedata.category(character)
    if character in "\n\t":
        return "↵" if character == "\n" else "⇥"
    if kind in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):  # direction marks would turn the page's own text round
        return f"⟨{ord(character):x}⟩"
    return f"◌{character}" if kind[0] == "M" else character
