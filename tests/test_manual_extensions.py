"""Extensions of the manual: terms of the glossary in a text, and plots in the colours of the page."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

EXTENSIONS = Path(__file__).parents[1] / "docs" / "_ext"


@pytest.fixture
def extension(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ModuleType:
    pytest.importorskip("sphinx")
    from importlib import import_module

    monkeypatch.syspath_prepend(str(EXTENSIONS))
    yield import_module(request.param)
    sys.modules.pop(request.param)


@pytest.mark.parametrize("extension", ["terms"], indirect=True)
def test_terms_are_whole_words_and_abbreviations_have_capitals(extension: ModuleType) -> None:
    words = extension.pattern(["attention", "self-attention", "MADE", "n-gram", "beam search"])
    text = "Attention is made of MADE, self-attentions, n-grams and Beam search; inattention and re-attention are not."
    assert words.findall(text) == ["Attention", "MADE", "self-attentions", "n-grams", "Beam search"]


@pytest.mark.parametrize("extension", ["plots"], indirect=True)
def test_a_plot_follows_the_colours_of_the_page(extension: ModuleType) -> None:
    from io import StringIO

    figures = pytest.importorskip("matplotlib.figure")
    figure = figures.Figure(figsize=(2, 1), facecolor="white")
    axes = figure.add_subplot(title="two", xlabel="time")
    axes.plot([0, 1], color="#2563a8")
    file = StringIO()
    figure.savefig(file, format="svg")
    page = extension.following(file.getvalue(), 'a "line" & its end')
    assert page.startswith('<div class="plot"><svg role="img" aria-label="a &quot;line&quot; &amp; its end"')
    assert "stroke: var(--blue)" in page
    assert "stroke: currentColor" in page
    assert not [left for left in ("#000000", "#ffffff", "#2563a8", "<metadata", '<g id="') if left in page]
