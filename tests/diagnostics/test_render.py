"""Pages from templates: one head, everything from outside escaped, nothing left out without a word."""

from pathlib import Path

import numpy as np
import pytest
import torch
from jinja2 import UndefinedError

from chainrule.diagnostics.mask_images import MaskImage
from chainrule.diagnostics.report import render as module
from chainrule.diagnostics.report.image_page import ImageReport, image_page
from chainrule.diagnostics.report.render import render

NASTY = "<script>\x1b[31m"
TEMPLATES = Path(module.__file__).with_name("templates")


def image() -> str:
    layers = tuple(f"{NASTY}{place}" for place in range(5))
    mask = MaskImage(layers, "A", torch.tensor([[1.0, 0.5, 0.0]]), torch.eye(2, dtype=torch.bool))
    pixels = np.zeros((4, 6, 3), np.uint8)
    return image_page(ImageReport(NASTY, NASTY, [NASTY, NASTY], pixels, pixels, NASTY, [mask], NASTY, NASTY))


def attention() -> str:
    answers = [
        {"label": NASTY, "share": 0.25, "line": 3, "words": [(NASTY, 0.75, 0.8), ("b", 0.25, 0.1)]},
        {"label": "empty", "share": 1.0, "line": 4, "words": []},
    ]
    return render("attention.html", answers=answers)


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
    assert '<span style="--a:80%" title="0.750">&lt;script&gt;⟨1b⟩[31m</span>' in html
    assert "empty: the shares of the labels in training" in html
    assert "<b>empty</b> 100.0%" in html


def test_a_value_that_is_missing_is_an_error_and_no_gap():
    with pytest.raises(UndefinedError, match="answers"):
        render("attention.html")


def test_all_pages_have_the_same_base():
    pages = [  # a name that begins with _ is a part of pages
        path
        for path in TEMPLATES.glob("[!_]*.html")
        if "<section" in path.read_text() or "block main" in path.read_text()
    ]
    assert {path.name for path in pages} == {
        "base.html",
        "image.html",
        "attention.html",
        "attention_report.html",
        "classifier.html",
        "code.html",
        "heads.html",
        "recurrence.html",
    }
    for path in pages:
        assert path.name == "base.html" or path.read_text().startswith('{% extends "base.html" %}')
