"""Pictures of the playground, and the small ones of the README; `pictures.py` draws them."""

from typing import Any

import numpy as np
from pictures import STATIC, Studio, keep, served
from PIL import Image

# Pictures of the README's gallery, parts of those of the manual: file, and left, top, right, bottom in shares of it.
THUMBNAILS = {
    "text": ("surprise", (0, 0.55, 0.8, 1)),
    "table": ("playground_table", (0.03, 0.6, 0.63, 0.94)),
    "forecast": ("airline", (0.45, 0, 1, 1)),
    "tags": ("tags", (0.03, 0.5, 0.565, 0.98)),
    "labels": ("labels", (0, 0.13, 0.56, 1)),
    "images": ("images", (0, 0, 1, 1)),
    "codes": ("codes", (0, 0, 1, 1)),
    "attention": ("attention", (0, 0, 1, 1)),
    "music": ("music", (0, 0, 1, 1)),
    "sound": ("sound", (0, 0, 0.72, 1)),
    "inspect": ("inspect", (0, 0, 0.64, 0.33)),
}


def settled(page: Any, words: str) -> None:
    """Wait until the status line of the playground has these words."""
    page.locator("#status", has_text=words).wait_for(timeout=120_000)


def uncovered(page: Any) -> None:
    """Hide the status line, which lies over the page."""
    page.locator("#status").evaluate(
        "(line) => { line.style.position = 'absolute'; line.style.visibility = 'hidden'; }"
    )


def unseeded(page: Any) -> None:
    """Take seed 1 for whatever is drawn."""
    page.get_by_label("Seed").fill("1")
    page.locator(".check input").set_checked(False)


def playground(studio: Studio) -> None:
    """Views of the playground, light and dark."""

    def text(page: Any) -> None:
        options = page.locator("details.options")
        is_open = options.evaluate("(part) => part.open")
        options.evaluate("(part) => { part.open = true; }")
        page.get_by_label("Prompt").fill("The method returns ")
        page.get_by_label("Temperature").fill("0.6")
        unseeded(page)
        options.evaluate("(part, open) => { part.open = open; }", is_open)
        page.get_by_role("button", name="Write").click()
        settled(page, "Done")
        page.locator(".token").nth(45).click()

    def elsewhere(page: Any) -> None:
        text(page)
        page.keyboard.press("Escape")
        page.get_by_text("The same elsewhere").click()
        page.get_by_role("button", name="Copy link").click()
        settled(page, "Copied")
        uncovered(page)

    def table(page: Any) -> None:
        page.locator(".distribution").first.wait_for()
        for column in ("sepal_width", "petal_length"):
            page.get_by_label(column).fill("")
        unseeded(page)
        page.get_by_role("button", name="Fill in the gaps").click()
        settled(page, "Filled in 3")

    def images(page: Any) -> None:
        unseeded(page)
        page.get_by_role("button", name="Erase lower half").click()
        page.get_by_role("button", name="Complete").click()
        settled(page, "Completed 4")
        uncovered(page)

    def captions(page: Any) -> None:
        page.locator(".chip").nth(1).wait_for()
        page.locator(".chip").nth(1).focus()
        page.locator(".candidates li").nth(3).wait_for()

    with served(studio, "manual", "flowers", "digits", "captions") as address:
        for name, run, act, options in (
            ("playground_text", "manual", text, {"height": 760}),
            ("playground_share", "manual", elsewhere, {"part": "details:has(.way)"}),
            ("playground_table", "flowers", table, {"height": 760}),
            ("playground_captions", "captions", captions, {"height": 1130}),
        ):
            studio.photograph_both(
                f"{address}#{run}", name, width=980, act=act, scale=1, **({"part": "main"} | options)
            )
        studio.photograph(
            f"{address}#digits", "playground_images", width=980, act=images, part="main", height=900, scale=1
        )
        studio.photograph(
            f"{address}#manual", "playground_phone", width=390, act=text, dark=True, part="body", height=780, scale=1
        )


def thumbnails() -> None:
    """The pictures of the README's gallery, readable at their size, light and dark."""
    for name, (source, (left, top, right, bottom)) in THUMBNAILS.items():
        own = STATIC / f"{source}_dark.png"
        light = Image.open(STATIC / f"{source}_light.png" if own.exists() else STATIC / f"{source}.png").convert("RGB")
        size = (light.width, light.height) * 2
        box = tuple(round(share * pixels) for share, pixels in zip((left, top, right, bottom), size, strict=True))
        dark = Image.open(own).convert("RGB") if own.exists() else turned(light)
        keep(light.crop(box), f"thumbnail_{name}_light")
        keep(dark.crop(box), f"thumbnail_{name}_dark")


def turned(picture: Image.Image) -> Image.Image:
    """A picture with its lightness turned round and its hues kept, as the manual shows it on a dark page."""
    values = np.asarray(picture) / 255 * (1 - 2 * 0.92) + 0.92
    light = values @ np.array([0.213, 0.715, 0.072])
    return Image.fromarray((255 * np.clip(2 * light[..., None] - values, 0, 1)).round().astype(np.uint8))
