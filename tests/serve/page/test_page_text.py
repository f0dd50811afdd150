"""Texts in the browser: streamed, stopped, branched, edited, reloaded, read and looked into."""

from math import log
from typing import Any

import pytest

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install playwright")
from playwright.sync_api import expect

STATUS = "#status"
expect.set_options(timeout=30_000)


def begin(page: Any, run: str, prompt: str, length: int = 40) -> None:
    page.goto(f"/#{run}")
    page.get_by_label("Prompt").wait_for()
    if not page.get_by_label("Length").is_visible():
        page.get_by_text("Options").click()
    page.get_by_label("Length").fill(str(length))
    page.get_by_label("Prompt").fill(prompt)


def write(page: Any) -> None:
    page.get_by_role("button", name="Write").click()
    expect(page.locator(STATUS)).to_contain_text("Done")


def tokens(page: Any) -> Any:
    return page.locator(".page:not(.inside) .token")


@pytest.mark.parametrize("page", [1280, 360], indirect=True)
def test_a_text_is_streamed_and_coloured(page: Any) -> None:
    begin(page, "lstm", "the cat")
    write(page)
    assert tokens(page).count() == 47
    assert page.locator(".page .given").count() == 7
    assert page.locator(".page").first.text_content().startswith("the cat")
    assert page.locator(".figures").text_content().startswith("47 characters")


def test_stop_and_escape_end_a_text(page: Any) -> None:
    for stop in (lambda: page.get_by_role("button", name="Stop").click(), lambda: page.keyboard.press("Escape")):
        begin(page, "lstm", "the", 10_000)
        page.get_by_role("button", name="Write").click()
        expect(tokens(page).nth(20)).to_be_attached()
        stop()
        expect(page.locator(STATUS)).to_contain_text("Stopped")
        count = tokens(page).count()
        assert count < 10_000
        write_more = page.get_by_role("button", name="Continue")
        expect(write_more).to_be_enabled()


def test_a_click_on_an_alternative_branches(page: Any) -> None:
    begin(page, "lstm", "the cat")
    write(page)
    before = tokens(page).all_text_contents()
    tokens(page).nth(20).click()
    choices = page.locator(".popover li button")
    assert choices.count() == 10
    other = choices.filter(has_not=page.locator("xpath=self::*[@aria-current]")).nth(3)
    label = other.locator(".name").text_content()
    other.click()
    expect(page.locator(STATUS)).to_contain_text("Done")
    after = tokens(page).all_text_contents()
    assert after[:20] == before[:20]
    assert after[20] == label.replace("␣", " ").replace("\\n", "\n")
    assert len(after) == 20 + 1 + 40
    page.get_by_role("button", name="Undo").click()
    assert tokens(page).all_text_contents() == before


def test_earlier_versions_are_kept(page: Any) -> None:
    begin(page, "lstm", "the cat")
    write(page)
    first = tokens(page).all_text_contents()
    before = page.locator(".versions button").count()  # the example that the page began with
    tokens(page).nth(20).click()
    page.locator(".popover li button:not([aria-current=true])").nth(3).click()
    expect(page.locator(STATUS)).to_contain_text("Done")
    second = tokens(page).all_text_contents()
    page.locator(".versions summary").click()
    assert page.locator(".versions button").count() == before + 1
    version = page.locator(".versions button").first
    assert version.text_content().startswith("from character 21 · ")
    version.click()
    assert tokens(page).all_text_contents() == first
    page.locator(".versions button").first.click()
    assert tokens(page).all_text_contents() == second


def test_a_text_is_edited_and_continued(page: Any) -> None:
    begin(page, "lstm", "the cat", 10)
    write(page)
    page.get_by_role("button", name="Continue").click()
    expect(tokens(page)).to_have_count(27)
    expect(page.locator(STATUS)).to_contain_text("Done")
    text = "".join(tokens(page).all_text_contents())
    page.get_by_role("button", name="Edit").click()
    assert page.get_by_label("Prompt").input_value() == text


def test_the_same_seed_writes_what_the_run_samples(page: Any, runs: dict[str, Any]) -> None:
    begin(page, "lstm", "the cat")
    page.get_by_label("new each time").uncheck()
    page.get_by_label("Seed").fill("5")
    page.get_by_label("Temperature").fill("1")
    write(page)
    assert ["".join(tokens(page).all_text_contents())] == runs["lstm"].sample(1, prompt="the cat", length=40, seed=5)


def test_a_prompt_may_end_inside_a_symbol(page: Any, runs: dict[str, Any]) -> None:
    begin(page, "pieces", "a dog & a bi", 20)
    page.get_by_label("new each time").uncheck()
    page.get_by_label("Seed").fill("5")
    page.get_by_label("Temperature").fill("1")
    write(page)
    shown = tokens(page).all_text_contents()
    assert ["".join(shown)] == runs["pieces"].sample(1, prompt="a dog & a bi", length=20, seed=5)
    assert tokens(page).count() == page.locator(".page .given").count() + 20
    labels = tokens(page).evaluate_all("parts => parts.map((part) => part.getAttribute('aria-label'))")
    nats = [float(label.rsplit(", ", 1)[1].removesuffix(" nats")) for label in labels]
    assert all(value > 0 for value in nats)
    assert abs(sum(nats) - float(page.locator(".figures").text_content().split(" · ")[1].split()[0])) < 0.2
    tokens(page).nth(page.locator(".page .given").count()).click()
    assert page.locator(".popover li button").count() == 10


def test_a_reload_keeps_the_text(page: Any) -> None:
    begin(page, "lstm", "the cat")
    write(page)
    before = tokens(page).all_text_contents()
    page.reload()
    expect(tokens(page)).to_have_count(len(before))
    assert tokens(page).all_text_contents() == before
    assert page.get_by_label("Prompt").input_value() == "the cat"
    page.get_by_role("button", name="Continue").click()  # the session is forgotten: the text is read again
    expect(tokens(page)).to_have_count(len(before) + 40)


def test_reading_a_text_gives_the_nats_of_score(page: Any, runs: dict[str, Any]) -> None:
    begin(page, "lstm", "a dog sat")
    page.get_by_role("button", name="Read my text").click()
    expect(page.locator(STATUS)).to_contain_text("Read 9 characters")
    nats = runs["lstm"].score(["a dog sat"])["nats"][0]
    assert f"{nats:.1f} nats" in page.locator(".figures").text_content()


def test_two_runs_read_the_same_text(page: Any, runs: dict[str, Any]) -> None:
    begin(page, "lstm", "a cat sat")
    page.get_by_label("The other run").select_option("pieces")
    page.get_by_role("button", name="Read with both").click()
    expect(page.locator(STATUS)).to_contain_text("Both have read")
    figures = page.locator(".pair .muted").all_text_contents()
    for name, shown in zip(("lstm", "pieces"), figures, strict=True):
        nats = runs[name].score(["a cat sat"])["nats"][0]
        assert shown == f"{nats:.1f} nats · {nats / log(2) / 9:.2f} bits a character"
    assert page.locator(".pair .page").all_text_contents() == ["a cat sat"] * 2


def test_markup_in_a_corpus_stays_text(page: Any, hostile: str) -> None:
    begin(page, "lstm", hostile)
    page.get_by_role("button", name="Read my text").click()
    expect(page.locator(STATUS)).to_contain_text(f"Read {len(hostile)} characters")
    assert "".join(tokens(page).all_text_contents()) == hostile
    assert page.title() == "lstm · chainrule playground"
    assert page.locator("main script").count() == 0


def test_an_unknown_character_is_named(page: Any) -> None:
    begin(page, "lstm", "日本")
    page.get_by_role("button", name="Write").click()
    expect(page.locator(STATUS)).to_contain_text("the model never saw the characters '日', '本'")


def test_the_keyboard_alone_is_enough(page: Any) -> None:
    page.goto("/#lstm")
    page.get_by_label("Prompt").focus()
    page.keyboard.type("the cat")
    page.keyboard.press("Control+Enter")
    expect(page.locator(STATUS)).to_contain_text("Done")
    page.get_by_role("button", name="Copy", exact=True).focus()
    page.keyboard.press("Tab")
    for _ in range(10):
        page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.dataset.place") == "10"
    assert page.locator(".popover").is_visible()
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('.popover') !== null")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.dataset.place") == "10"
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator(".token.branch")).to_have_count(1)
    expect(page.locator(STATUS)).to_contain_text("Done")


def test_gates_of_a_unit_are_shown(page: Any) -> None:
    begin(page, "lstm", "the cat")
    write(page)
    page.get_by_text("Look inside: gates of a unit").click()
    expect(page.locator(".inside .token")).to_have_count(47)
    page.get_by_label("Show").select_option("forget")
    page.get_by_label("Unit, 0 to 15").fill("15")
    page.get_by_label("Unit, 0 to 15").blur()
    expect(page.get_by_role("img", name="Unit 15 of layer 1: input, forget, candidate, output")).to_be_visible()


def test_attention_of_a_head_is_shown(page: Any) -> None:
    begin(page, "heads", "the cat")
    write(page)
    page.get_by_text("Look inside: attention of a head").click()
    expect(page.locator(".inside .token")).to_have_count(47)
    expect(page.locator(".inside .token.current")).to_have_count(1)
    shaded = "[...document.querySelectorAll('.inside .token')].map((part) => part.style.backgroundColor)"
    tokens(page).nth(10).click()
    colours = page.evaluate(shaded)
    assert len(set(colours[:10])) > 1
    assert len(set(colours[10:])) == 1  # nothing that comes later is attended to


def test_texts_of_lines_end_with_their_line(page: Any) -> None:
    begin(page, "lines", "the cat", 200)
    write(page)
    assert tokens(page).count() < 200
    if page.get_by_role("button", name="Continue").is_disabled():
        assert tokens(page).last.get_attribute("aria-label").startswith("<eos>")


def test_the_page_follows_the_colour_scheme(chromium: Any, address: str) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        context = chromium.new_context(color_scheme=scheme, base_url=address)
        page = context.new_page()
        page.goto("/#lstm")
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        context.close()
    assert len(grounds) == 2


def test_a_late_answer_about_an_earlier_text_is_left_alone(page: Any) -> None:
    page.goto("/#lstm")
    expect(page.locator(".page .token").first).to_be_visible()
    with page.expect_response("**/playground/inside"):
        page.get_by_text("Look inside").click()
    held: list[Any] = []
    page.route("**/playground/inside", lambda route: held.append(route))
    for count, text in enumerate(("A d", "A dog and a bird."), 1):
        page.get_by_label("Prompt").fill(text)
        page.get_by_role("button", name="Read my text").click()
        while len(held) < count:
            page.wait_for_timeout(20)
    for route in reversed(held):
        with page.expect_response("**/playground/inside"):
            route.continue_()
    expect(page.locator(".inside .token")).to_have_count(17)  # and no error: see `page`
