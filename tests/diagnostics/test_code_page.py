"""The page about a code shows text as it shows images: escaped, in tables, with bars."""

import numpy as np
from inspected_codes import code_report


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
