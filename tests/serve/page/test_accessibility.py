"""axe finds nothing serious on any view, page of a run or page of the manual, in both themes and at both widths.

Its script comes with axe-playwright-python, of the extra `nightly`. The manual is that of the last `make docs`.
"""

from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

WHEEL = find_spec("axe_playwright_python")
MANUAL = Path(__file__).parents[3] / "docs" / "_build" / "html"
NAMES = (
    "lstm", "heads", "lines", "pieces", "images", "kinds", "tunes", "codes", "tones", "table", "tags", "labels",
    "pairs", "captions", "series",
)  # fmt: skip
PAGES = ("lstm", "heads", "images", "kinds", "codes", "labels", "pairs")  # runs that have a page of `inspect`
GRAVE = ("serious", "critical")
REST = "document.querySelectorAll('details').forEach(part => { part.open = true; })"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(WHEEL is None, reason="axe is not installed: pip install axe-playwright-python"),
]


@pytest.fixture(scope="session")
def axe() -> str:
    """The script of axe."""
    assert WHEEL is not None
    assert WHEEL.origin is not None
    return Path(WHEEL.origin).with_name("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture
def broken_rules(axe: str) -> Callable[[Any], list[tuple[str, str, str, list[str]]]]:
    """Open all parts of a page in one theme after the other: theme, impact, rule and places of what axe finds."""

    def look(page: Any) -> list[tuple[str, str, str, list[str]]]:
        page.emulate_media(reduced_motion="reduce")
        page.evaluate(REST)
        page.evaluate(axe)
        rules = []
        for scheme, only in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):  # which differs between themes
            page.emulate_media(color_scheme=scheme)
            page.evaluate("document.getAnimations().forEach((each) => each.cancel())")  # colours that fade over
            options = {"resultTypes": ["violations"], **only}
            for rule in page.evaluate("options => axe.run(document, options)", options)["violations"]:
                places = [node["html"][:120] for node in rule["nodes"][:3]]
                rules.append((scheme, rule["impact"], rule["id"], places))
        return rules

    return look


@pytest.fixture
def assert_accessible(
    broken_rules: Callable[[Any], list[Any]], capsys: pytest.CaptureFixture[str]
) -> Callable[[Any, str], None]:
    """Print how much axe finds on a page, and refuse what is serious."""

    def check(page: Any, name: str) -> None:
        rules = broken_rules(page)
        serious = [rule for rule in rules if rule[1] in GRAVE]
        with capsys.disabled():
            width = page.evaluate("innerWidth")
            print(f"\naxe: {name}, {width} px: {len(serious)} serious, {len(rules) - len(serious)} others")
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


@pytest.mark.skipif(not (MANUAL / "index.html").is_file(), reason="the manual is not built: make docs")
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious_in_the_manual(
    chromium: Any, width: int, broken_rules: Callable[[Any], list[Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = sorted(MANUAL.rglob("*.html"))
    names = [path for path in paths if path.parent.name == "generated"]  # a page for each name, all made alike
    paths = [path for path in paths if path not in names] + names[::30]
    assert len(paths) > 50
    counts, serious = Counter[str](), []
    page = chromium.new_page(viewport={"width": width, "height": 800})
    for path in paths:
        page.goto(path.as_uri())
        for scheme, impact, rule, places in broken_rules(page):
            counts[f"{impact} {rule}"] += 1
            serious += [(str(path.relative_to(MANUAL)), scheme, rule, places)] if impact in GRAVE else []
    page.close()
    with capsys.disabled():
        others = sum(counts.values()) - len(serious)
        print(f"\naxe: manual, {len(paths)} pages, {width} px: {len(serious)} serious, {others} others", dict(counts))
    assert serious == []
