"""axe finds nothing serious on any view, in both themes and at both widths.

Its script is no part of this project: `npm install axe-core`, and AXE_CORE=node_modules/axe-core/axe.min.js names it.
"""

import os
from pathlib import Path
from typing import Any

import pytest

AXE = os.environ.get("AXE_CORE", "")
NAMES = (
    "lstm", "heads", "lines", "pieces", "images", "kinds", "tunes", "codes", "tones", "table", "tags", "labels",
    "pairs", "series",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not Path(AXE).is_file(), reason="AXE_CORE names no file of axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_axe_finds_nothing_serious(page: Any, name: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(f"/#{name}")
    page.locator("#main[aria-busy=false]").wait_for()
    page.wait_for_timeout(1500)  # until the example of the view is answered
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true; })")
    page.wait_for_timeout(500)
    page.evaluate(Path(AXE).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
    assert [
        (rule["id"], [node["html"][:120] for node in rule["nodes"][:3]])
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ] == []
