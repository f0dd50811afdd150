"""Images, tables and answers in the browser."""

from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
from playwright.sync_api import expect

STATUS = "#status"
expect.set_options(timeout=30_000)
PIXELS = """(canvas) => {
  const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return Array.from({ length: data.length / 4 }, (_, place) => (data[4 * place + 3] === 255 ? data[4 * place] : null));
}"""

LOADED = """(audio) => audio.duration || new Promise((done) => {
  audio.addEventListener("loadedmetadata", () => done(audio.duration));
})"""


def pixels(canvas: Any) -> list[int | None]:
    """The brightness of each pixel; None where nothing is drawn."""
    return canvas.evaluate(PIXELS)


def test_images_are_drawn(page: Any) -> None:
    page.goto("/#images")
    page.get_by_role("button", name="Draw", exact=True).click()
    expect(page.locator(STATUS)).to_contain_text("Drew 4 images")
    assert all(set(pixels(canvas)) <= {0, 255} for canvas in page.locator(".tile canvas").all())


def test_a_drawing_is_stopped(page: Any) -> None:
    page.goto("/#images")
    page.route("**/playground/draw", lambda _: None)  # never answered
    page.get_by_role("button", name="Draw", exact=True).click()
    page.keyboard.press("Escape")
    expect(page.locator(STATUS)).to_contain_text("Stopped")
    assert pixels(page.locator(".tile canvas").first) == [None] * 64


def test_an_erased_part_is_completed_and_the_rest_kept(page: Any) -> None:
    page.goto("/#images")
    editor = page.locator("canvas.editor")
    expect(page.get_by_text("Nothing is erased yet")).to_be_visible()
    whole = pixels(editor)
    page.get_by_role("button", name="Erase lower half").click()
    erased = pixels(editor)
    assert erased[:32] == whole[:32]
    assert erased[32:] == [None] * 32
    expect(page.get_by_text("32 of 64 pixels are erased")).to_be_visible()
    page.get_by_role("button", name="Complete").click()
    expect(page.locator(STATUS)).to_contain_text("Completed 4 images")
    for canvas in page.locator(".tile canvas").all():
        completed = pixels(canvas)
        assert completed[:32] == whole[:32]
        assert set(completed[32:]) <= {0, 255}


def test_the_pointer_and_the_keyboard_erase(page: Any) -> None:
    page.goto("/#images")
    editor = page.locator("canvas.editor")
    expect(page.get_by_text("Nothing is erased yet")).to_be_visible()
    page.get_by_role("slider", name="Brush").fill("1")
    editor.scroll_into_view_if_needed()
    box = editor.bounding_box()
    page.mouse.click(box["x"] + box["width"] * 1.5 / 8, box["y"] + box["height"] * 2.5 / 8)
    assert [place for place, value in enumerate(pixels(editor)) if value is None] == [2 * 8 + 1]
    editor.focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Space")
    assert [place for place, value in enumerate(pixels(editor)) if value is None] == [2 * 8 + 1, 3 * 8 + 4]
    expect(page.get_by_text("kept pixels that come later stay as they are")).to_be_visible()


def test_sliders_redraw_an_image(page: Any) -> None:
    page.goto("/#codes")
    canvas = page.locator("canvas.editor")
    sliders = page.locator(".sliders input")
    expect(sliders).to_have_count(3)
    with page.expect_response("**/playground/decode"):
        sliders.first.fill("3")
    with page.expect_response("**/playground/encode-example"):
        page.get_by_role("button", name="Held-out image").click()
    expect(page.locator("figure")).to_be_visible()
    assert len(pixels(canvas)) == 64


def test_a_sound_is_drawn_played_and_completed(page: Any, runs: dict[str, Any]) -> None:
    page.goto("/#tones")
    expect(page.locator("audio")).to_have_count(1)  # of a held-out clip
    if not page.get_by_label("Seconds to draw").is_visible():
        page.get_by_text("Options").click()
    page.get_by_label("Seconds to draw").fill("0.05")
    page.get_by_role("button", name="Draw", exact=True).click()
    expect(page.locator(STATUS)).to_contain_text("Done")
    assert page.locator("audio").first.evaluate(LOADED) == pytest.approx(0.05)
    expect(page.get_by_text("200 samples")).to_be_visible()
    page.get_by_role("button", name="Held-out clip").click()
    expect(page.locator("audio")).to_have_count(2)
    page.get_by_role("button", name="Complete").click()
    expect(page.get_by_text("pale: the prompt")).to_be_visible()
    expect(page.locator(STATUS)).to_contain_text("Done")
    assert page.locator("audio").first.evaluate(LOADED) == pytest.approx(0.05 + 0.05)
    page.get_by_label("Open a sound file").set_input_files(runs["tones"].path.parent / "clips" / "low_1.wav")
    expect(page.get_by_text("0.10 s, 400 samples").last).to_be_visible()
    page.get_by_role("button", name="Read it").click()
    expect(page.locator(STATUS)).to_contain_text("Read.")
    page.get_by_label("Open a sound file").set_input_files(
        {"name": "no.wav", "mimeType": "audio/wav", "buffer": b"no sound"}
    )
    expect(page.locator(STATUS)).to_contain_text("no sound that the browser can read")


def test_gaps_of_a_row_are_filled_in(page: Any, hostile: str) -> None:
    page.goto("/#table")
    expect(page.locator(STATUS)).to_contain_text("Filled in 1 column")  # of a held-out row
    page.get_by_role("button", name="Clear").click()
    page.get_by_label("count").fill("1")
    page.get_by_role("button", name="Fill in the gaps").click()
    expect(page.locator(STATUS)).to_contain_text("Filled in 2 columns, 200 times")
    expect(page.locator(".distribution")).to_have_count(2)
    assert hostile in page.locator(".distribution .name").all_text_contents()
    assert page.locator("main script").count() == 0
    page.get_by_role("button", name="Use row 1", exact=True).click()
    page.get_by_role("button", name="Probability").click()
    expect(page.locator(STATUS)).to_contain_text("log p =")
    expect(page.locator(".bars li")).to_have_count(3)
    page.reload()
    expect(page.get_by_label("count")).to_have_value("1")


def test_words_are_tagged(page: Any) -> None:
    page.goto("/#tags")
    page.get_by_role("textbox").fill("Ada Lovelace saw Paris\n<b>Paris</b>")
    page.get_by_role("button", name="Tag").click()
    expect(page.locator(".tagged")).to_have_count(2)
    assert page.locator(".tagged b").count() == 0
    assert "<b>Paris</b>" in page.locator(".tagged").nth(1).text_content()


def test_a_text_is_classified(page: Any) -> None:
    page.goto("/#labels")
    page.get_by_role("textbox").fill("a good film")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".bars li")).to_have_count(2)
    expect(page.locator(".tagged .word")).to_have_count(3)
    expect(page.get_by_text("It does not explain the label")).to_be_visible()


def test_a_sentence_is_translated(page: Any) -> None:
    page.goto("/#pairs")
    page.get_by_role("textbox").fill("das haus")
    page.get_by_role("button", name="Translate").click()
    expect(page.locator(".answer")).to_have_count(1)


def test_a_series_is_forecast(page: Any) -> None:
    page.goto("/#series")
    expect(page.locator("svg.chart")).to_have_count(1)
    column = page.locator("textarea").get_attribute("placeholder").splitlines()[0]
    page.locator("textarea").fill("\n".join([column, *(str(place % 7) for place in range(120))]))
    with page.expect_response("**/playground/forecast"):
        page.get_by_role("button", name="Forecast what follows").click()
    expect(page.locator("svg.chart")).to_have_count(1)


def test_a_run_that_cannot_do_more_says_so(page: Any) -> None:
    page.route("**/playground/runs", lambda route: route.fulfill(json={"runs": [
        {"name": "other", "task": "other", "model": "none", "best": "", "view": "", "facts": {}}]}))  # fmt: skip
    page.goto("/")
    expect(page.get_by_text("no view for this run")).to_be_visible()
    assert page.get_by_role("button").count() == 0


def test_a_token_is_asked_for(chromium: Any, guarded_address: str) -> None:
    context = chromium.new_context(base_url=guarded_address)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Open").click()
    page.get_by_label("Token").fill("sesame")
    page.keyboard.press("Enter")
    expect(page.get_by_role("link", name="labels")).to_be_visible()
    context.close()
    context = chromium.new_context(base_url=guarded_address)
    page = context.new_page()
    page.goto("/#token=sesame")
    expect(page.get_by_role("link", name="labels")).to_be_visible()
    assert "sesame" not in page.url
    context.close()


OPENED = {
    "lstm": ".page .token",
    "heads": ".page .token",
    "lines": ".page .token",
    "images": "canvas.editor",
    "kinds": ".results .bars li",
    "codes": "canvas.editor",
    "tunes": ".roll .note",
    "tones": "svg.wave",
    "table": ".distribution",
    "tags": ".tagged",
    "labels": ".results .bars li",
    "pairs": ".answer",
    "captions": ".answer",
    "series": "svg.chart",
}


@pytest.mark.parametrize("name", OPENED)
def test_no_view_opens_blank(page: Any, name: str) -> None:
    page.goto(f"/#{name}")
    expect(page.locator(OPENED[name]).first).to_be_visible()
    assert page.locator(STATUS + ".wrong").count() == 0


def test_a_drawn_digit_is_classified_as_it_is_drawn(page: Any) -> None:
    page.goto("/#kinds")
    expect(page.locator(".results .bars li")).to_have_count(2)
    pad = page.locator("canvas.pad")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    with page.expect_response("**/playground/classify-image") as answer:
        page.mouse.move(box["x"] + 60, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 200, box["y"] + 200, steps=5)
    assert answer.value.status == 200
    with page.expect_response("**/playground/classify-image"):
        page.mouse.up()


def test_a_piece_is_drawn_after_a_held_out_one(page: Any) -> None:
    page.goto("/#tunes")
    expect(page.locator(".roll .note").first).to_be_visible()
    page.get_by_role("button", name="Draw", exact=True).click()
    expect(page.locator(STATUS)).to_contain_text("Drew")
    expect(page.get_by_text("the beginning that was given")).to_be_visible()


def test_what_was_not_seen_in_training_is_named(page: Any) -> None:
    page.goto("/#pairs")
    expect(page.locator(".answer").first).to_be_visible()
    page.get_by_label("Sentences, one a line").fill("das schloss ist klein")
    page.get_by_role("button", name="Translate").click()
    expect(page.locator("p.wrong")).to_contain_text("read as unknown: schloss")


def test_an_error_stays_and_stop_ends_what_waits(page: Any) -> None:
    page.goto("/#pairs")
    expect(page.locator(".answer").first).to_be_visible()
    page.route("**/playground/answer", lambda route: route.fulfill(status=400, json={"error": {"message": "no such"}}))
    page.get_by_role("button", name="Translate").click()
    expect(page.locator(STATUS)).to_have_class("status wrong")
    expect(page.locator(STATUS)).to_contain_text("no such")
    page.goto("/#lstm")
    expect(page.locator(".page .token").first).to_be_visible()
    page.route("**/playground/text", lambda _: None)  # never answered
    page.get_by_role("button", name="Write").click()
    stop = page.get_by_role("button", name="Stop")
    stop.click()
    expect(stop).to_be_disabled()
    expect(page.locator("main")).to_have_attribute("aria-busy", "false")


def test_a_link_restores_a_view_and_the_skip_link_keeps_the_run(page: Any) -> None:
    page.goto("/#labels?input=a%20bad%20film")
    expect(page.get_by_role("textbox")).to_have_value("a bad film")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    assert page.title() == "labels · chainrule playground"


def test_a_link_restores_the_images_that_were_drawn(page: Any) -> None:
    drawn = "[...document.querySelectorAll('.tile canvas')].map(canvas => canvas.toDataURL())"
    page.goto("/#images?n=8&temperature=0.9&seed=7")
    expect(page.locator(STATUS)).to_contain_text("Drew 8 images")
    first = page.evaluate(drawn)
    page.reload()
    expect(page.locator(STATUS)).to_contain_text("Drew 8 images")
    assert page.evaluate(drawn) == first
    with page.expect_download() as file:
        page.get_by_role("button", name="Download").click()
    assert file.value.suggested_filename == "images.png"


@pytest.mark.parametrize("name", OPENED)
def test_every_view_has_its_request_elsewhere(page: Any, name: str) -> None:
    page.goto(f"/#{name}")
    page.get_by_text("The same elsewhere").click()
    expect(page.get_by_role("button", name="Copy as")).to_have_count(3)
    command, python, curl = page.locator(".way pre").all_text_contents()
    assert "chainrule " in command
    assert python.startswith(f'import chainrule\n\nrun = chainrule.load("runs/{name}")')
    assert page.url.partition("/#")[0] in curl


def test_the_request_elsewhere_follows_the_page(page: Any) -> None:
    page.goto("/#lstm")
    expect(page.locator(".page .token").first).to_be_visible()
    page.get_by_text("The same elsewhere").click()
    page.get_by_label("Prompt").fill("It's a")
    expect(page.locator(".way pre").first).to_contain_text("--prompt 'It'\\''s a'")


def test_a_unit_that_is_not_there_becomes_the_last(page: Any) -> None:
    page.goto("/#lstm")
    expect(page.locator(".page .token").first).to_be_visible()
    page.get_by_text("Look inside").click()
    unit = page.get_by_label("Unit, 0 to 15")
    unit.fill("100000")
    unit.press("Enter")
    expect(unit).to_have_value("15")


def test_a_game_counts_guesses(page: Any) -> None:
    page.goto("/#lstm")
    expect(page.get_by_text("perplexity")).to_be_visible()  # the text above has come, and moves nothing any more
    page.get_by_text("Beat the model").click()
    page.get_by_role("button", name="Tell me").click()
    expect(page.get_by_text("you needed help")).to_be_visible()
    expect(page.locator("tr", has_text="the model")).to_be_visible()


def test_nothing_is_guessed_before_the_text_has_come(page: Any) -> None:
    page.goto("/#lstm")
    expect(page.get_by_text("perplexity")).to_be_visible()
    page.route("**/playground/read", lambda _: None)  # never answered
    page.get_by_text("Beat the model").click()
    expect(page.get_by_role("button", name="Tell me")).to_be_disabled()
    expect(page.get_by_label("Your guess")).to_be_disabled()


def test_a_wrong_token_is_said(chromium: Any, guarded_address: str) -> None:
    page = chromium.new_page()
    page.goto(guarded_address)
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("alert")).to_contain_text("did not accept")
    page.close()
