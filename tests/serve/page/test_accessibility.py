"""axe finds nothing serious on any view of the playground or page of a run, in both themes and at both widths.

Its script is no part of this project: `npm install axe-core`, and AXE_CORE=node_modules/axe-core/axe.min.js names it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

AXE = os.environ.get("AXE_CORE", "")
NAMES = (
    "lstm", "heads", "lines", "pieces", "images", "kinds", "tunes", "codes", "tones", "table", "tags", "labels",
    "pairs", "captions", "series",
)  # fmt: skip
PAGES = ("lstm", "heads", "images", "kinds", "codes", "labels", "pairs")  # runs that have a page of `inspect`
REST = "document.querySelectorAll('details').forEach(part => { part.open = true; })"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path(AXE).is_file(), reason="AXE_CORE names no file of axe-core: npm install axe-core, which has axe.min.js"
    ),
]


@pytest.fixture
def assert_accessible(capsys: pytest.CaptureFixture[str]) -> Callable[[Any, str], None]:
    """Open all parts of a page in one theme after the other, print how much axe finds, and refuse what is serious."""

    def check(page: Any, name: str) -> None:
        page.evaluate(REST)
        page.evaluate(Path(AXE).read_text(encoding="utf-8"))
        serious = []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(700)  # until colours have faded over
            found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
            grave = [rule for rule in found if rule["impact"] in ("serious", "critical")]
            with capsys.disabled():
                width = page.evaluate("innerWidth")
                print(f"\naxe: {name}, {width} px, {scheme}: {len(grave)} serious, {len(found) - len(grave)} others")
            serious += [(scheme, rule["id"], [node["html"][:120] for node in rule["nodes"][:3]]) for rule in grave]
        assert serious == []

    return check


@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_nothing_serious(page: Any, name: str, assert_accessible: Callable[[Any, str], None]) -> None:
    page.goto(f"/#{name}")
    page.locator("#main[aria-busy=false]").wait_for()
    page.wait_for_timeout(1500)  # until the example of the view is answered
    assert_accessible(page, name)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("kind", ["report", "inspect"])
def test_axe_finds_nothing_serious_on_pages(
    chromium: Any, runs: dict[str, Any], kind: str, name: str, assert_accessible: Callable[[Any, str], None]
) -> None:
    written = getattr(runs[name], kind)()
    for width in (1280, 390):
        page = chromium.new_page(viewport={"width": width, "height": 800})
        page.set_content(written.page)
        assert_accessible(page, f"{kind} of {name}")
        page.close()
