"""Pages as data: one template, everything from outside escaped, nothing left out without a word."""

import math

import numpy as np
import pytest
import torch
from jinja2 import UndefinedError
from markupsafe import Markup

from chainrule_app.pages.attention_page import attention_page
from chainrule_app.pages.image_page import MaskImage, image_sections
from chainrule_app.pages.page import Page, Part, Table, Text
from chainrule_app.readers.labelled.labelled_file import LabelledText
from chainrule_app.tasks.classify.labelling import LabelledAnswer

NASTY = "<script>\x1b[31m"


def image() -> str:
    layers = tuple(f"{NASTY}{place}" for place in range(5))
    mask = MaskImage(layers, "A", torch.tensor([[1.0, 0.5, 0.0]]), torch.eye(2, dtype=torch.bool))
    pixels = np.zeros((4, 6, 3), np.uint8)
    return str(Page(NASTY, NASTY, image_sections([NASTY, NASTY], pixels, pixels, NASTY, [mask], NASTY), NASTY))


def attention() -> str:
    answers = [
        LabelledAnswer(LabelledText(3, NASTY, ""), (math.log(0.25), math.log(0.125)), [NASTY, "b"], [0.75, 0.25], 0),
        LabelledAnswer(LabelledText(4, "", ""), (-9.0, 0.0), [], [], 0),
    ]
    return str(attention_page(answers, [NASTY, "empty"], NASTY))


@pytest.mark.parametrize("page", [image, attention])
def test_a_page_escapes_everything_and_lets_nothing_in(page):
    html = page()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert html.count("default-src 'none'; style-src 'unsafe-inline'; img-src data:") == 1
    assert html.count("<h1>") == html.count("<title>") == html.count("<main>") == 1
    assert 'name="viewport"' in html
    assert page() == html


def test_the_page_of_an_image_model_names_the_first_layers_and_the_last():
    html = image()
    assert "0, &lt;script&gt;" in html
    assert "… &lt;script&gt;" in html
    assert html.count("<img") == 3
    assert html.count('class="swatch"') == 6


def test_the_page_of_attention_shades_words_and_says_where_there_are_none():
    html = attention()
    assert '<i style="--a:24%" title="0.750">&lt;script&gt;⟨1b⟩[31m</i>' in html
    assert "empty: label frequencies of training" in html
    assert "<b>empty</b> 100.0%" in html


def test_a_value_that_is_missing_is_an_error_and_no_gap():
    class Empty(Part):
        macro = "page"

    with pytest.raises(UndefinedError, match="title"):
        str(Page("", "", [Empty()]))


def test_only_markup_holds_tags():
    page = str(Page("", "", ["<b>", Text("<b>"), Table(["<b>"], [["<b>", Markup("<i>x</i>")]])]))
    assert page.count("&lt;b&gt;") == 4
    assert "<b>" not in page
    assert "<td><i>x</i></td>" in page
