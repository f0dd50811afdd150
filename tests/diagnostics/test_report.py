"""The page: what it says, and what it never does."""

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import torch
from inspected_texts import make, make_page, report_page
from PIL import Image

from chainrule.diagnostics import Inspection
from chainrule.diagnostics._verdict import verdict
from chainrule_app.pages.page import visible
from chainrule_app.pages.read_text import (
    GATES,
    MOST_ELEMENTS,
    STATES,
    ReadRow,
    ReadText,
    palette,
    surprise_text,
)
from chainrule_app.pages.recurrence_page import LAYER_FIGURES, RULES


class Page(HTMLParser):
    """What a page holds: tags in order, and its text outside of styles."""

    def __init__(self, page: str):
        super().__init__()
        self.tags: list[tuple[str, dict]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "img", "path", "use", "rect"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if tag not in ("path", "use", "rect"):
            assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    def values(self, name: str) -> list[str]:
        return [attributes[name] for _, attributes in self.tags if name in attributes]


@pytest.fixture(scope="module")
def page() -> str:
    return make_page()


def test_the_page_is_whole_and_holds_every_part(page):
    parsed = Page(page)
    assert parsed.open == []
    names = parsed.values("id")
    assert len(names) == len(set(names))
    assert {
        "layer-1",
        "layer-2",
        "clipping",
        "surprise",
        "figures",
        "rules",
        *(f"rule-{name}" for name in RULES),
    } <= set(names)
    assert len([tag for tag, _ in parsed.tags if tag == "svg"]) == 2 * 5 + 1
    text = " ".join(" ".join(parsed.words).split())
    for part in (
        "Layer 2: LSTM, 6 units",
        "memory, by change",
        "12.5% of the 8 steps",
        "bits a character",
        "cell state c",
    ):
        assert part in text


def test_every_link_leads_somewhere_on_the_page(page):
    parsed = Page(page)
    links = [value for value in parsed.values("href") if not value.startswith("data:")]
    assert links
    assert {link.removeprefix("#") for link in links} <= set(parsed.values("id"))
    for layer in make(num_layers=2)[0].layers:
        assert f"#rule-{layer.verdict.rule}" in links


def test_nothing_is_run_or_fetched(page):
    parsed = Page(page)
    assert not {"script", "iframe", "object", "embed", "form"} & {tag for tag, _ in parsed.tags}
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]
    for source in parsed.values("src") + [value for value in parsed.values("href") if not value.startswith("#")]:
        assert source.startswith("data:")
    assert "@import" not in page
    assert set(re.findall(r"url\(([^)]{0,9})", page)) <= set(re.findall(r"url\((#[^)]{0,8})", page))
    assert "default-src 'none'" in page


@pytest.mark.parametrize("level", ["char", "byte", "word"])
def test_text_is_escaped_and_what_has_no_shape_gets_one(level):
    html = report_page(*make(level=level))
    tags = {tag for tag, _ in Page(html).tags}
    assert "script" not in tags
    assert not {"u"} & tags
    body = html.split("</head>")[1]
    assert "\x1b" not in body
    assert "\u202e" not in body
    assert "onclick='" not in body
    assert "↵" in body
    assert "&lt;em&gt;text" in body
    assert "runs/&lt;i&gt;mine" in body


def test_control_characters_are_visible():
    assert visible("a\tb\r\n\x00\x7f\u2028") == "a⇥b⟨d⟩↵⟨0⟩⟨7f⟩⟨2028⟩"
    assert visible("\u0301") == "◌\u0301"
    assert visible("né ü 漢") == "né␣ü␣漢"
    assert visible(" ", blanks=False) == " "


def surprise_section(surprise, read, lengths) -> str:
    return surprise_text(surprise, read, lengths).__html__()


def test_the_text_can_be_read_in_the_surprise_section():
    inspection, subject = make(lines=("some plain text\n", "more of it"), num_layers=1)
    words = "".join(Page(surprise_section(inspection.surprise, subject, inspection.flow.lengths)).words)
    assert "some plain text↵" in words
    assert "more of it" in words


def test_every_element_shows_its_own_bits():
    inspection, subject = make(lines=("abcabc", "ab"))
    html = surprise_section(inspection.surprise, subject, inspection.flow.lengths)
    shown = [float(value) for value in re.findall(r'data-b="([^"]+)"', html)]
    bits = [value for row, count in enumerate((6, 2)) for value in inspection.surprise[row, :count].tolist()]
    assert shown == [pytest.approx(value, abs=0.051) for value in bits]


def test_the_colour_is_deeper_the_more_bits():
    bits = torch.arange(9.0).unsqueeze(0)
    rows = [ReadRow("a" * 9, [(place, place + 1) for place in range(9)])]
    html = surprise_section(bits, ReadText("x", "char", rows), torch.tensor([9]))
    levels = [int(level) for level in re.findall(r'<b class="s(\d+)" tabindex', html)]
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == (0, 10)
    assert len(set(levels)) >= 8


def test_a_very_long_text_is_cut_and_said_to_be():
    rows = [ReadRow("a" * 1000, [(place, place + 1) for place in range(1000)]) for _ in range(12)]
    html = surprise_section(torch.rand(12, 1000), ReadText("x", "char", rows), torch.full((12,), 1000))
    assert html.count("data-b") == MOST_ELEMENTS
    assert "4 more rows are not shown" in html


def test_traces_show_the_state_that_has_read_the_column():
    inspection, subject = make("gru", lines=("abcabcabc",))
    html = report_page(inspection, subject)
    assert "The units are those that vary most" in html
    strips = re.findall(r'src="data:image/png;base64,([^"]+)" alt="([^"]+)"', html)
    assert [alt for _, alt in strips] == [
        "state h of 5 units over 8 columns of text",
        "reset gate of 5 units over 8 columns of text",
        "update gate of 5 units over 8 columns of text",
        "state h of all 6 units over 8 columns of text",
    ]
    state = inspection.flow.gates[0]["hidden"][0, 1:]  # h_{t+1} has read x_t
    largest = state.abs().amax(0)
    order = state.std(0, unbiased=False).argsort(descending=True)[:5]
    expected = ((state[:, order] / largest[order] + 1) / 2 * 255).round().T
    assert pixels(base64.b64decode(strips[0][0])) == pytest.approx(expected.numpy(), abs=1)


def pixels(png: bytes) -> np.ndarray:
    """The indices of a PNG with a palette."""
    with Image.open(io.BytesIO(png)) as image:
        assert image.mode == "P"
        return np.asarray(image).astype(float)


def test_no_row_without_a_number_is_coloured():
    inspection, subject = make(lines=("ab",))
    nothing = torch.full_like(inspection.surprise, float("nan"))
    assert "No row is finite." in surprise_section(nothing, subject, inspection.flow.lengths)


def test_a_row_that_is_not_finite_is_named_and_left_out():
    inspection, subject = make(lines=("abcd", "bcda"))
    broken = torch.full_like(inspection.surprise[0], float("nan"))
    surprise = torch.stack([broken, inspection.surprise[1]])
    flow = inspection.flow.__class__(**(vars(inspection.flow) | {"nonfinite": [(0, 2)]}))
    html = report_page(Inspection(inspection.layers, flow, inspection.every_step, surprise), subject)
    assert "Row 1 is left out of all means: not finite from step 3 on." in html
    assert "Row 2. Each column" in html
    assert 'data-b="∞"' in html


def test_a_layer_that_no_gradient_reaches_is_shown():
    inspection, subject = make("rnn", nonlinearity="relu", num_layers=2, dead=True)
    html = report_page(inspection, subject)
    assert "no gradient arrives" in html
    assert "<td>none</td>" in html


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        pytest.param("rnn", {"nonlinearity": "relu"}, marks=pytest.mark.slow),
        pytest.param("gru", {"reset_after": False}, marks=pytest.mark.slow),
        ("lstm", {}),
    ],
)
def test_the_same_inspection_gives_the_same_page(cell, options):
    one, other = (report_page(*make(cell, **options)) for _ in range(2))
    assert one == other


def test_the_page_of_the_usual_size_is_small():
    text = "the quick brown fox jumps over it, (now and then), " * 4
    inspection, subject = make(lines=(text[:200],) * 8, num_layers=2)
    assert len(report_page(inspection, subject).encode()) < 1_000_000


def test_every_rule_is_described_in_order_and_every_description_is_a_rules():
    source = Path(verdict.__code__.co_filename).read_text(encoding="utf-8")
    assert re.findall(r'Verdict\(\s*"([a-z-]+)"', source) == list(RULES)  # in the order in which they apply


def test_the_documentation_lists_every_rule_and_figure_as_they_are():
    page = (Path(__file__).parents[2] / "docs" / "inspecting.md").read_text(encoding="utf-8").replace("\\|", "|")
    rules = [f"| `{name}` | {rule.condition} | {rule.meaning} | {rule.remedy} |" for name, rule in RULES.items()]
    figures = [f"| {figure.name} | {figure.meaning} |" for figure in LAYER_FIGURES]
    for rows in (rules, figures):
        assert "\n".join(rows) in page


def test_a_plain_rnn_has_no_gates():
    page = report_page(*make("rnn"))
    assert "State over the text" in page
    assert not re.search(r"\bgates?\b 0 <|>gates ", page)
    assert "Gates and state over the text" in report_page(*make("gru"))


@pytest.mark.parametrize("colours", [GATES, STATES])
def test_no_end_of_a_heat_map_is_nearly_black(colours):
    assert (palette(colours) @ np.array([0.2126, 0.7152, 0.0722])).min() > 50  # of 255
