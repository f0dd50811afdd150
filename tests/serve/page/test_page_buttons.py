"""Each button of each kind of run, at both widths, in light and in dark, leaves no error.

Screenshots are kept in docs/_build/screens, beside the manual of the last `make docs`.
"""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
from playwright.sync_api import expect

pytestmark = pytest.mark.slow

SCREENS = Path(__file__).parents[3] / "docs" / "_build" / "screens"
NAMES = (
    "lstm", "heads", "lines", "pieces", "images", "kinds", "tunes", "codes", "tones", "table", "tags", "labels",
    "pairs", "captions", "series",
)  # fmt: skip
STATUS = "#status"
# What presses the button of a number among those that can be pressed now; how many there are.
PRESS = """(number) => {
  const buttons = [...document.querySelectorAll("main button")].filter((one) => !one.disabled && one.offsetParent);
  buttons[number]?.click();
  return buttons.length;
}"""
OPEN = "document.querySelectorAll('details').forEach((part) => { part.open = true; })"


def rest(page: Any) -> None:
    """Wait until what was asked for has come."""
    page.locator("#main[aria-busy=false]").wait_for(timeout=60_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_every_button_works(dressed_page: Any, name: str, scheme: str, capsys: pytest.CaptureFixture[str]) -> None:
    page = dressed_page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(f"/#{name}")
    rest(page)
    page.wait_for_timeout(500)
    if page.viewport_size["width"] < 1000:
        page.evaluate("scrollTo(0, 0)")
    SCREENS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENS / f"{name}-{page.viewport_size['width']}-{scheme}.png", full_page=True)
    for box in page.locator("input[type=number]").all():
        if box.get_attribute("max") in ("10000", "30"):  # lengths: short texts and sounds are enough
            box.evaluate("(box) => { box.value = box.max === '30' ? 0.1 : 40; }")
    page.evaluate(OPEN)
    rest(page)
    number = 0
    while number < page.evaluate(PRESS, number) and number < 80:
        rest(page)
        assert not page.locator(STATUS + ".wrong").count(), page.locator(STATUS).text_content()
        number += 1
    with capsys.disabled():
        print(f"\nbuttons: {name}, {page.viewport_size['width']} px, {scheme}: {number} pressed")
    assert number > 2
    expect(page.locator("#main")).to_have_attribute("aria-busy", "false")
