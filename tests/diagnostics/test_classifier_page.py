"""Pages about classifiers of images and about codes."""

from dataclasses import replace

import numpy as np
import torch
from inspected_classifier import classifier_report, labelled_image
from inspected_codes import code_report

from chainrule_app.pages.image_page import HEAT


def test_the_page_says_what_was_answered_and_escapes_names():
    page = classifier_report()
    assert page == classifier_report()
    assert page.count("75.0%, is &lt;dog&gt;") == 3
    assert "<dog>" not in page
    assert "<held-out>" not in page
    assert page.count('<img class="pixels" src="data:image/png;base64,') == 2 * (3 + 2)
    assert "<td>2</td><td>3.5</td><td>2.5, 4.5</td>" in page


def test_a_page_without_mistakes_or_attention_says_so():
    page = classifier_report(wrong=[], distances=[])
    assert "None of the images that were read." in page
    assert "This model has no attention" in page


def test_heat_is_where_the_classifier_looked_and_the_rest_is_the_image_in_grey():
    shown = labelled_image(0, channels=3)
    heat = shown.heat.astype(float)
    grey = np.repeat(shown.image.astype(float).mean(0)[:, :, None], 3, 2)
    assert heat.shape == (12, 16, 3)
    assert np.abs(heat[6:, 8:] - grey[6:, 8:]).max() <= 0.5
    assert np.abs(heat[0, 0] - (0.75 * HEAT + 0.25 * grey[0, 0])).max() <= 0.5


def test_an_image_that_was_looked_at_nowhere_is_grey():
    shown = replace(labelled_image(0), looked=torch.zeros(3, 4))
    assert np.array_equal(shown.heat, np.repeat(shown.image[0][:, :, None], 3, 2))


def test_text_is_shown_in_tables_and_escaped():
    page = code_report()
    assert page.count("<tr><td>a &lt;b&gt; c</td>") == 1  # of the pairs
    assert page.count("<td>a &lt;b&gt; c</td>") == 2 + 2  # and of the strip of each active dimension
    assert page.count('<div class="strip-row">') == 2
    assert "<b>" not in page
    assert "<img" not in page
    assert "from line to line" in page


def test_a_bar_is_before_the_last_cell():
    page = code_report()
    assert '<td>2–3</td><td class="bars"><span class="bar" style="width:25.0%"></span></td><td>1.0</td>' in page
    assert '<th scope="col">position</th><th></th><th scope="col">nats</th>' in page


def test_labels_colour_the_map():
    page = code_report()
    assert "column &lt;label&gt;" in page
    assert page.count("<circle") == 40
    assert page.count('fill="#0072b2"') == page.count('fill="#d98c00"') == 20
    plain = code_report(labels=False)
    assert "Colours are uniform" in plain
    assert plain.count('fill="#888888"') == 40


def test_images_are_shown_as_images():
    pixels = np.zeros((4, 12), np.uint8)
    page = code_report(pairs=("", pixels), error=("", pixels), traversals=("", {0: pixels}))
    assert page.count('<img class="pixels" src="data:image/png;base64,') == 3
    assert page.count("width:12px") == 3
