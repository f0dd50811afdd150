"""How a real browser lays the page out, and that it has nothing to complain of."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from inspected_classifier import classifier_report
from inspected_codes import code_report
from inspected_texts import make_heads_page, make_page

BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome is installed")

MEASURE = """<script>
addEventListener("load", () => {
  const parts = [...document.querySelectorAll("svg, img")].map(part => part.getBoundingClientRect());
  const blocks = [...document.querySelectorAll("h1, h2, p, dd, figure, .scroll")];
  const lines = blocks.map(part => part.getBoundingClientRect());
  const measured = {
    width: innerWidth, scroll: document.documentElement.scrollWidth,
    smallest: Math.min(...parts.map(part => Math.min(part.width, part.height))), images: parts.length,
    right: Math.max(...lines.map(line => line.right)),
    fetched: performance.getEntriesByType("resource").map(entry => entry.name),
    letters: Math.min(...[...document.querySelectorAll("svg text")].map(part => part.getBoundingClientRect().height)),
  };
  parent.postMessage(JSON.stringify(measured), "*");
});
</script>"""
FRAME = """<!doctype html><script>
addEventListener("message", event => { document.title = "measured " + event.data; });
</script><iframe src="page.html" style="border: 0; width: {width}px; height: 900px"></iframe>"""


@pytest.fixture(scope="module")
def page() -> str:
    return make_page()


def browse(file: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a browser makes of a file: the document on standard output, complaints on standard error."""
    asked = [
        "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--dump-dom",
        f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000", file.as_uri(),
    ]  # fmt: skip
    return subprocess.run([BROWSER, *asked], capture_output=True, text=True, check=True, timeout=120)


def measured(page: str, width: int, folder: Path) -> dict:
    """What a browser measures of a page in a frame of such a width: no window is so narrow."""
    copy = re.sub(r"<meta http-equiv[^>]*>", "", page).replace("</head>", MEASURE + "</head>")
    (folder / "page.html").write_text(copy, encoding="utf-8")
    (folder / "frame.html").write_text(FRAME.replace("{width}", str(width)), encoding="utf-8")
    done = browse(folder / "frame.html", folder)
    assert "CONSOLE" not in done.stderr
    found = re.search(r"<title>measured (.*?)</title>", done.stdout)
    assert found, done.stdout[:500]
    figures = json.loads(found[1].replace("&gt;", ">"))
    assert figures["width"] == width
    assert figures["scroll"] <= width
    assert figures["right"] <= width
    assert figures["fetched"] == []
    return figures


@pytest.mark.parametrize("width", [360, 1280])
def test_a_browser_shows_it_without_a_complaint(page, width, tmp_path):
    figures = measured(page, width, tmp_path)
    assert figures["images"] == 2 * (5 + 5) + 1
    assert figures["smallest"] >= 50
    assert figures["letters"] >= 9  # pixels, on a phone too


def test_images_of_a_classifier_are_large_enough_on_a_phone(tmp_path):
    figures = measured(classifier_report(), 360, tmp_path)
    assert figures["images"] == 2 * (3 + 2)
    assert figures["smallest"] >= 120


def test_the_tables_of_a_page_about_a_code_fit_on_a_phone(tmp_path):
    assert measured(code_report(), 360, tmp_path)["images"] == 1


@pytest.mark.parametrize("width", [360, 1280])
def test_a_browser_shows_the_heads_of_a_transformer(width, tmp_path):
    assert measured(make_heads_page(), width, tmp_path)["images"] == 2 * 2


def test_the_page_itself_keeps_to_its_own_policy(page, tmp_path):
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    done = browse(tmp_path / "page.html", tmp_path)
    assert "CONSOLE" not in done.stderr
    assert "Layer 1" in done.stdout
