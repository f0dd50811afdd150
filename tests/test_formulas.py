r"""Every formula of the manual, on pages and in docstrings, is drawn as TeX reads it.

docutils reads `\tfrac12 x` as 12 over x, `\hat x_t` with t below x, and `\text{a\_b}` with the backslash: what a
browser shows wrongly builds without a warning. So each is read twice, its source by the rules of TeX and the MathML
that the manual's converter makes of it: both must have the same fractions, roots, indices, limits, accents and symbols.
"""

import ast
import re
import unicodedata
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import takewhile
from pathlib import Path
from textwrap import dedent
from typing import Any
from xml.etree import ElementTree

import pytest
from markdown_it import MarkdownIt
from mdit_py_plugins.amsmath import amsmath_plugin
from mdit_py_plugins.dollarmath import dollarmath_plugin

ROOT = Path(__file__).parents[1]
LIMITS = set("∑∏⋃⋂⨁") | {"max", "min", "sup", "inf", "lim"}  # what lies over and under these is an index all the same
WORDS = """
alpha beta gamma delta epsilon zeta eta theta kappa lambda mu nu xi pi rho sigma tau phi chi psi omega
Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega
log ln exp max min sup inf lim arg sin cos tanh det dim Pr
"""
SIGNS = """
mid=∣ |=‖ lVert=‖ rVert=‖ Vert=‖ lvert=| rvert=| top=⊤ partial=∂ odot=⊙ ell=ℓ infty=∞ cdot=⋅ cdots=⋯ ldots=… dots=…
sum=∑ prod=∏ int=∫ bigcup=⋃ bigcap=⋂ bigoplus=⨁ in=∈ notin=∉ sim=∼ le=≤ leq=≤ ge=≥ geq=≥ ne=≠ neq=≠ ll=≪ gg=≫ propto=∝
approx=≈ equiv=≡ times=× pm=± circ=∘ ast=∗ star=⋆ oplus=⊕ otimes=⊗ leftarrow=← rightarrow=→ to=→ gets=← mapsto=↦ wedge=∧
Rightarrow=⇒ uparrow=↑ downarrow=↓ lfloor=⌊ rfloor=⌋ lceil=⌈ rceil=⌉ langle=⟨ rangle=⟩ subset=⊂ supset=⊃ subseteq=⊆
cup=∪ cap=∩ setminus=∖ emptyset=∅ nabla=∇ forall=∀ exists=∃ prime=' vdots=⋮ ddots=⋱ perp=⊥ parallel=∥ neg=¬ hbar=ℏ
varepsilon=ε varphi=φ vee=∨ {={ }=} _=_ %=% &=& #=# $=$
"""
SMALL, CAPITAL, FUNCTIONS = (line.split() for line in WORDS.strip().splitlines())
SYMBOLS = dict(sign.rsplit("=", 1) for sign in SIGNS.split())
SPACES = [*",;:!", " ", "\n", "quad", "qquad", "thinspace", "displaystyle", "textstyle"]
SIZES = [f"{size}{side}" for size in ("big", "Big", "bigg", "Bigg") for side in ("", "l", "r", "m")]
LETTERS = ("mathrm", "mathbb", "mathcal", "mathbf", "mathit", "mathsf", "operatorname", "boldsymbol")
ACCENTS = {
    "hat": "ˆ",
    "widehat": "^",
    "tilde": "~",
    "widetilde": "~",
    "bar": "ˉ",
    "overline": "_",
    "dot": "˙",
    "vec": "→",
}
ACCENTS |= {"overrightarrow": "→", "overleftarrow": "←", "check": "ˇ"}


def symbols(text: str) -> list[Any]:
    """Characters without their style: a bold R is an R; blanks count for nothing, prime and minus are one sign each."""
    text = unicodedata.normalize("NFKC", "".join(text.split())).replace("\N{FUNCTION APPLICATION}", "")
    return list(text.replace("-", "−").replace(":", "∶").replace("′", "'"))


def joined(items: list[Any]) -> Any:
    """A row as a tuple, rows in it dissolved, primes part of what they follow; one thing alone is no row."""
    result: list[Any] = []
    for item in (item[1] if item[0] == "group" else item for item in items):
        if item == "'" and result:
            base, sub, sup = result[-1][1:] if result[-1][0] == "script" else (result[-1], None, None)
            result[-1] = ("script", base, sub, joined([*([] if sup is None else [sup]), "′"]))
        else:
            result.append(item)
    flat: list[Any] = []
    for item in result:
        flat += item[1:] if item[0] == "row" else [item]
    return flat[0] if len(flat) == 1 else ("row", *flat)


class Source:
    """A formula as TeX reads it: an argument is one token or one group."""

    def __init__(self, text: str):
        self.tokens = re.findall(r"\\[a-zA-Z]+|\\.|[^\s]", text, re.DOTALL)
        self.texts = iter(re.findall(r"\\(?:text|textrm|mbox)\s*\{((?:[^{}]|\\[{}])*)\}", text))
        self.place = 0

    def take(self) -> str:
        token = self.tokens[self.place]
        self.place += 1
        return token

    def peek(self) -> str:
        return self.tokens[self.place] if self.place < len(self.tokens) else ""

    def row(self, *ends: str) -> Any:
        """Up to one of the `ends`, which is taken too."""
        items: list[Any] = []
        while self.place < len(self.tokens) and self.peek() not in ends:
            if (token := self.take()) in ("_", "^"):
                item = items.pop() if items else ("row",)
                base, sub, sup = item[1:] if item[0] == "script" else (joined([item]), None, None)
                part = self.argument()
                assert (sub if token == "_" else sup) is None, "two indices"
                items.append(("script", base, part, sup) if token == "_" else ("script", base, sub, part))
            elif token == "'":
                item = items.pop()
                base, sub, sup = item[1:] if item[0] == "script" else (item, None, None)
                items.append(("script", base, sub, joined([*([] if sup is None else [sup]), "′"])))
            elif (item := self.atom(token)) is not None:
                items.append(item)
        if ends and self.place < len(self.tokens):
            self.take()
        return joined(items)

    def argument(self) -> Any:
        item = self.atom(self.take())
        return ("row",) if item is None else joined([item])

    def table(self) -> Any:
        """Rows and cells up to the end of an environment, or of the formula."""
        rows: list[list[Any]] = [[]]
        while True:
            rows[-1].append(self.row("&", "\\\\", "\\end"))
            ended = self.tokens[self.place - 1] if self.place else ""
            if ended == "\\\\":
                rows.append([])
            elif ended != "&":
                return ("table", *(tuple(row) for row in rows))

    def atom(self, token: str) -> Any:
        if token == "{":
            return ("group", self.row("}"))  # an index behind it belongs to all of it
        if not token.startswith("\\"):
            return None if token == "~" else joined(symbols(token))
        name = token[1:]
        if name in SPACES or name in SIZES:
            return None
        if name in SMALL + CAPITAL:
            size, letter = "SMALL" if name in SMALL else "CAPITAL", name.upper().replace("LAMBDA", "LAMDA")
            return joined(symbols(unicodedata.lookup(f"GREEK {size} LETTER {letter}")))
        if name in FUNCTIONS:
            return joined(symbols(name))
        if name in SYMBOLS:
            return joined(symbols(SYMBOLS[name]))
        if name in LETTERS:
            return self.argument()
        if name in ("text", "textrm", "mbox"):
            self.argument()
            return joined(symbols(re.sub(r"\\(.)", r"\1", next(self.texts))))
        if name in ("frac", "tfrac", "dfrac"):
            return ("frac", self.argument(), self.argument())
        if name == "sqrt":
            if self.peek() != "[":
                return ("sqrt", self.argument())
            self.take()
            degree = self.row("]")
            return ("root", self.argument(), degree)
        if name in ACCENTS:
            return ("accent", ACCENTS[name], self.argument())
        if name == "left":
            first, inside, last = self.delimiter(), self.row("\\right"), self.delimiter()
            return joined([*first, inside, *last])
        if name == "begin":
            kind = "".join(takewhile(lambda token: token != "}", iter(self.take, None)))[1:]
            table = self.table()
            self.argument()  # the name after \end
            return joined(["{", table]) if kind == "cases" else table
        raise AssertionError(f"unknown command {token}")

    def delimiter(self) -> list[Any]:
        token = self.take()
        return [] if token == "." else [self.atom(token)]


def rendered(node: ElementTree.Element) -> Any:
    """MathML in the same form."""
    name, parts = node.tag.rpartition("}")[2], list(node)
    match name:
        case "mi" | "mn" | "mo" | "mtext":
            return joined(symbols(node.text or ""))
        case "mspace":
            return ("row",)
        case "mfrac" | "mroot":
            return ("frac" if name == "mfrac" else "root", *map(rendered, parts))
        case "msqrt":
            return ("sqrt", joined(list(map(rendered, parts))))
        case "mover" if parts[1].tag.endswith("mo") and parts[1].text in ACCENTS.values():
            return ("accent", parts[1].text, rendered(parts[0]))
        case "msub" | "msup" | "msubsup" | "munder" | "mover" | "munderover":
            kind = "script" if name.startswith("ms") or "".join(parts[0].itertext()).strip() in LIMITS else name
            base, *others = map(rendered, parts)
            sub = others.pop(0) if "sub" in name or "under" in name else None
            sup = others[0] if others else None
            if parts[0].tag.endswith("mn"):  # of 12² the 2 alone has the index: drawn, it is the same
                *before, last = symbols(parts[0].text or "")
                return joined([*before, (kind, last, sub, sup)])
            return (kind, base, sub, sup)
        case "mtable":
            return ("table", *(tuple(joined(list(map(rendered, cell))) for cell in row) for row in parts))
        case "mrow" | "math" | "mstyle":
            return joined(list(map(rendered, parts)))
    raise AssertionError(f"unknown element {name}")


def page_formulas(path: Path) -> Iterator[tuple[str, str, bool]]:
    parser = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin).use(amsmath_plugin)
    tokens = parser.parse(path.read_text(encoding="utf-8"))
    for token in tokens:
        for part in [token, *(token.children or ())]:
            if part.type in ("math_inline", "math_inline_double", "math_block", "math_block_label", "amsmath"):
                yield f"{path.name}: {part.content.strip()}", part.content, part.type != "math_inline"


def docstring_formulas(path: Path) -> Iterator[tuple[str, str, bool]]:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, documented) or not (text := ast.get_docstring(node)):
            continue
        name = f"{path.relative_to(ROOT)}: {getattr(node, 'name', '')}"
        for source in re.findall(r":math:`((?:[^`\\]|\\.)*)`", text, re.DOTALL):
            yield f"{name}: {source}", source, False
        for margin, first, rest in re.findall(r"^( *)\.\. math::(.*)\n((?:\1 +.*\n?|\s*\n)*)", text, re.MULTILINE):
            for block in re.split(r"\n\s*\n", f"{first.strip()}\n{dedent(rest)}".strip()):  # each is a formula
                yield f"{name}: {block}", block.strip(), True
            assert isinstance(margin, str)


def formulas_of_pages() -> list[tuple[str, str, bool]]:
    pages = [path for path in ROOT.glob("docs/**/*.md") if "_build" not in path.parts]
    return [formula for path in [*sorted(pages), ROOT / "CHANGELOG.md"] for formula in page_formulas(path)]


def formulas_of_docstrings() -> list[tuple[str, str, bool]]:
    return [formula for path in sorted(ROOT.glob("chainrule/**/*.py")) for formula in docstring_formulas(path)]


@pytest.fixture(scope="module")
def extension() -> Any:
    spec = spec_from_file_location("mathml", ROOT / "docs/_ext/mathml.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def both_readings(extension: Any, source: str, *, as_block: bool) -> tuple[Any, Any]:
    text = extension.to_mathml(source, as_block=as_block)
    read = Source(source)
    expected = read.table() if as_block and "\\\\" in read.tokens and "\\begin" not in read.tokens else read.row()
    assert read.place == len(read.tokens)
    return expected, rendered(ElementTree.fromstring(text))


def fault(extension: Any, source: str, *, as_block: bool) -> str:
    """The two readings where they differ, or what cannot be read; empty where all is well."""
    try:
        expected, drawn = both_readings(extension, source, as_block=as_block)
    except Exception as error:
        return repr(error)
    return "" if expected == drawn else f"source {expected}\n    drawn  {drawn}"


@pytest.mark.parametrize("read", [formulas_of_pages, formulas_of_docstrings])
def test_formulas_are_drawn_as_their_sources_say(extension, read):
    formulas = read()
    assert len(formulas) > 200
    faults = [(where, fault(extension, source, as_block=as_block)) for where, source, as_block in formulas]
    assert not any(found for _, found in faults), "\n".join(f"{where}\n    {found}" for where, found in faults if found)


@pytest.mark.parametrize(
    "source",
    [r"\tfrac12 \ln x", r"x^12", r"\sqrt12", r"\frac123", r"D'^{-b}", r"x'_i", r"\overset{a}{b}_c", r"\unknown x"],
)
def test_what_docutils_reads_otherwise_than_tex_is_found(extension, source):
    assert fault(extension, source, as_block=False)


@pytest.mark.parametrize(
    ("source", "drawn"),
    [
        (r"\hat x_t", ("script", ("accent", "ˆ", "x"), "t", None)),
        (r"\tilde w_k^2", ("script", ("accent", "~", "w"), "k", "2")),
        (r"\text{a\_b}", ("row", "a", "_", "b")),
        (r"\tfrac{1}{2} x", ("row", ("frac", "1", "2"), "x")),
        (r"\sum_{t=1}^T x_t", ("row", ("script", "∑", ("row", "t", "=", "1"), "T"), ("script", "x", "t", None))),
    ],
)
def test_indices_of_accents_and_underscores_in_words_are_mended(extension, source, drawn):
    assert both_readings(extension, source, as_block=True) == (drawn, drawn)


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        (r"a = \frac{b}{c}, \qquad d = e", [r"a = \frac{b}{c}, ", " d = e"]),
        (r"\begin{cases} a & \qquad b \\ c & d \end{cases}", [r"\begin{cases} a & \qquad b \\ c & d \end{cases}"]),
        (r"a \qquad b \\ c \qquad d", [r"a \qquad b \\ c \qquad d"]),
        (r"\text{a \qquad b}", [r"\text{a \qquad b}"]),
    ],
)
def test_equations_side_by_side_are_drawn_apart(extension, source, parts):
    assert extension.equations(source) == parts
