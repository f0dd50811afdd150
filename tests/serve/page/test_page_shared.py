"""Every view has a link that restores it, saves its pictures, can be walked by keyboard, and keeps still on request."""

import json
import re
import time
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from chainrule_app.serve.playground_examples import data_url

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
from playwright.sync_api import expect

STATUS = "#status"
expect.set_options(timeout=30_000)
PNG = b"\x89PNG\r\n\x1a\n"

# What each view shows when it has answered, and the button that draws anew, if it has one.
VIEWS = {
    "lstm": (".page .token", "Write"),
    "heads": (".page .token", "Read my text"),
    "images": ("canvas.editor", "Draw"),
    "kinds": (".results .bars li", None),
    "codes": ("canvas.editor", "Random code"),
    "tones": ("svg.wave", "Draw"),
    "tunes": (".roll .note", "Draw"),
    "table": (".distribution", "Fill in the gaps"),
    "tags": (".tagged", "Tag"),
    "labels": (".results .bars li", "Classify"),
    "pairs": (".answer", "Translate"),
    "captions": (".chip", None),
    "series": ("svg.chart", "Forecast"),
}
# Texts, pictures and charts of a view, but for the map inside a model, which is drawn when it is opened.
SHOWN = """() => JSON.stringify([
  ...[...document.querySelectorAll("main canvas:not(.heat, .pad)")].map((canvas) => canvas.toDataURL()),
  ...[...document.querySelectorAll("main svg *, main .results p, main .bars .name, main .answer")].map((part) =>
    ["d", "x", "y", "height"].map((name) => part.getAttribute(name)) + part.textContent),
  ...[...document.querySelectorAll("main .page")].map((part) => part.textContent)])"""


def eventually(place: Any, script: str, expected: Any) -> Any:
    """Return what a script gives on a page or an element, once it is as expected; after ten seconds, whatever it is."""
    until = time.monotonic() + 10  # the page's policy forbids to wait by a script
    while (found := place.evaluate(script)) != expected and time.monotonic() < until:
        time.sleep(0.05)
    return found


def settled(page: Any, address: str, ready: str) -> None:
    page.goto(address)
    page.locator(ready).first.wait_for()
    page.locator("#main[aria-busy=false]").wait_for()
    expect(page.locator(STATUS)).not_to_contain_text("…")


@pytest.mark.parametrize("name", VIEWS)
def test_a_link_restores_what_a_view_shows(page: Any, name: str) -> None:
    ready, verb = VIEWS[name]
    settled(page, f"/#{name}", ready)
    if name in ("lstm", "heads"):
        page.get_by_label("Prompt").fill("A dog")
    if name == "tones":
        for options in page.locator("details:not([open]) summary", has_text="Options").all():
            options.click()
        page.get_by_label("Seconds to draw").fill("0.05")
    if name in ("pairs", "captions"):
        page.get_by_label("Beam").select_option("8")
    if name in ("kinds", "captions"):
        page.get_by_role("button", name="held-out image 2").click()
    if verb is not None:
        page.get_by_role("button", name=verb, exact=True).click()
    expect(page.locator("#main")).to_have_attribute("aria-busy", "false")
    expect(page.locator(STATUS)).not_to_contain_text("…")
    expect(page.locator(STATUS)).not_to_have_class(re.compile("wrong"))
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(STATUS)).to_contain_text("Copied")
    shown, link = page.evaluate(SHOWN), page.evaluate("navigator.clipboard.readText()")
    assert len(json.loads(shown)) > 0
    page.evaluate("sessionStorage.clear()")
    page.goto("about:blank")
    page.goto(link)
    page.locator(ready).first.wait_for()
    assert eventually(page, SHOWN, shown) == shown


def test_a_link_restores_an_image_that_was_completed(page: Any) -> None:
    settled(page, "/#images", "canvas.editor")
    expect(page.get_by_text("Nothing is erased yet")).to_be_visible()
    page.get_by_role("button", name="Erase lower half").click()
    page.get_by_role("button", name="Complete").click()
    expect(page.locator(STATUS)).to_contain_text("Completed 4 images")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(STATUS)).to_contain_text("Copied")
    shown, link = page.evaluate(SHOWN), page.url
    page.goto("about:blank")
    page.goto(link)
    assert eventually(page, SHOWN, shown) == shown


def test_a_link_restores_a_sound_file(page: Any, runs: dict[str, Any]) -> None:
    settled(page, "/#tones", "svg.wave")
    page.get_by_label("Open a sound file").set_input_files(runs["tones"].path.parent / "clips" / "low_1.wav")
    page.get_by_role("button", name="Read it").click()
    expect(page.locator(STATUS)).to_contain_text("Read.")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy link").click()
    expect(page.locator(STATUS)).to_contain_text("Copied")
    shown, link = page.evaluate(SHOWN), page.url
    assert len(link) < 2000  # a tone repeats
    page.goto("about:blank")
    page.goto(link)
    assert eventually(page, SHOWN, shown) == shown


@pytest.mark.parametrize("name", ["series", "tunes", "tones", "table"])
def test_charts_are_saved_as_files_of_their_own(page: Any, name: str) -> None:
    """An SVG file has its colours and needs no style sheet; a PNG file has twice its pixels."""
    settled(page, f"/#{name}", VIEWS[name][0])
    if name == "tones":
        page.get_by_role("button", name="Held-out clip").click()
    if name == "table":
        page.get_by_role("button", name="Clear").click()
        page.get_by_role("button", name="Fill in the gaps").click()
    with page.expect_download() as file:
        page.get_by_role("button", name="as SVG").first.click()
    root = ElementTree.parse(file.value.path()).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "var(" not in file.value.path().read_text("utf-8")
    drawn = [part for part in root.iter() if part.tag.rpartition("}")[2] in ("path", "rect", "line")]
    assert all(part.get("fill") for part in drawn)
    assert {part.get("fill") for part in drawn} - {"none", "rgb(0, 0, 0)"}
    with page.expect_download() as file:
        page.get_by_role("button", name="as PNG").first.click()
    content = file.value.path().read_bytes()
    assert content[:8] == PNG
    assert int.from_bytes(content[16:20], "big") == 2 * int(root.get("width"))


CAPTION = {
    "image": data_url(np.full((1, 2, 2), 255, np.uint8)),
    "candidates": [
        {"caption": "one two", "nats": 1.0, "words": ["one", "two"], "surprise": [0.5, 0.5],
         "attention": [[0.7, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.7]]},
        {"caption": "three", "nats": 2.0, "words": ["three"], "surprise": [2.0], "attention": [[0.1, 0.7, 0.1, 0.1]]},
    ],
}  # fmt: skip
BRIGHTEST = """(canvas) => {
  const { width, height } = canvas;
  const light = (x, y) => canvas.getContext("2d").getImageData(x * width, y * height, 1, 1).data[0];
  const corners = [[0.02, 0.02], [0.98, 0.02], [0.02, 0.98], [0.98, 0.98]].map(([x, y]) => light(x, y));
  return corners.indexOf(Math.max(...corners));
}"""


def test_each_word_of_a_caption_shows_where_it_looked(page: Any) -> None:
    page.route("**/playground/caption-image", lambda route: route.fulfill(json=CAPTION))
    settled(page, "/#captions", ".chip")
    picture = page.locator("canvas.looked")
    expect(page.get_by_text("“one” had 61%; the brightest place got 70% of the attention")).to_be_visible()
    assert eventually(picture, BRIGHTEST, 0) == 0
    page.get_by_role("button", name="two", exact=True).hover()
    expect(page.get_by_text("“two” had 61%")).to_be_visible()
    assert eventually(picture, BRIGHTEST, 3) == 3
    page.get_by_role("button", name="two", exact=True).focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text("“one” had 61%")).to_be_visible()
    assert eventually(picture, BRIGHTEST, 0) == 0
    expect(page.locator(".candidates .number")).to_have_text(["37%", "14%"])  # e^-1 and e^-2
    page.locator(".candidates button").nth(1).click()
    expect(page.get_by_text("“three” had 14%")).to_be_visible()
    assert eventually(picture, BRIGHTEST, 1) == 1


def test_a_captioner_without_attention_says_so(page: Any) -> None:
    told = CAPTION | {"candidates": [candidate | {"attention": None} for candidate in CAPTION["candidates"]]}
    page.route("**/playground/caption-image", lambda route: route.fulfill(json=told))
    settled(page, "/#captions", ".chip")
    expect(page.get_by_text("it has no attention to show")).to_be_visible()


# Controls that can be seen; of radio buttons and of words with the arrow keys one is enough.
REACHABLE = """() => {
  const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary, audio, [tabindex]")];
  const seen = all.filter((part) => part.checkVisibility() && !part.disabled && part.tabIndex >= 0);
  seen.forEach((part, place) => { part.dataset.walk = place; });
  return seen.length;
}"""
FOCUS = """() => {
  const part = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(part);
  const box = part.getBoundingClientRect();
  const isMarked = outlineStyle !== "none" && parseFloat(outlineWidth) > 0;
  return [part.dataset.walk ?? null, part.outerHTML.slice(0, 90), isMarked, box.bottom > 0 && box.top < innerHeight];
}"""


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_the_tab_key_walks_through_a_view(page: Any, name: str) -> None:
    """Every control has the focus once, visibly and on the screen, in order, and the last one lets go of it."""
    settled(page, f"/#{name}", VIEWS[name][0])
    count, order = page.evaluate(REACHABLE), []
    for _ in range(count + 40):  # an audio player has controls of its own
        page.keyboard.press("Tab")
        place, part, is_marked, is_on_screen = page.evaluate(FOCUS)
        if place is None:
            break
        assert is_marked, f"no sign of the focus on {part}"
        assert is_on_screen, f"the focus is off the screen on {part}"
        if not order or order[-1] != int(place):
            order.append(int(place))
    assert order == list(range(count))
    page.keyboard.press("Shift+Tab")
    assert page.evaluate(FOCUS)[0] is not None  # and it comes back


MOVING = """() => [...document.querySelectorAll("*")].filter((part) => {
  const { transitionDuration, scrollBehavior } = getComputedStyle(part);
  return parseFloat(transitionDuration) || scrollBehavior === "smooth";
}).map((part) => part.outerHTML.slice(0, 90))"""


@pytest.mark.slow
@pytest.mark.parametrize("name", VIEWS)
def test_nothing_moves_where_less_motion_is_wanted(page: Any, name: str) -> None:
    page.emulate_media(reduced_motion="reduce")
    settled(page, f"/#{name}", VIEWS[name][0])
    verb = VIEWS[name][1]
    page.route("**/playground/*", lambda _: None)  # what was asked for stays under way
    if verb is not None:
        page.get_by_role("button", name=verb, exact=True).click()
    assert page.evaluate("document.getAnimations().length") == 0
    assert page.evaluate(MOVING) == []
