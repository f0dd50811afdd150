"""Extensions of the manual: terms of the glossary, plots in the colours of the page, captions of the sidebar."""

import ast
import re
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

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


@pytest.mark.parametrize("extension", ["mathml"], indirect=True)
def test_names_of_functions_have_thin_spaces_and_norms_low_bars(extension: ModuleType) -> None:
    def kinds(source: str) -> list[str]:
        return [node.tag for node in ElementTree.fromstring(extension.to_mathml(source, as_block=False))]

    math = "{http://www.w3.org/1998/Math/MathML}"
    assert kinds(r"a\log b") == [f"{math}{tag}" for tag in ("mi", "mspace", "mi", "mo", "mspace", "mi")]
    assert kinds(r"\log(b)") == [f"{math}{tag}" for tag in ("mi", "mo", "mo", "mi", "mo")]
    assert kinds(r"\log_2 b") == [f"{math}{tag}" for tag in ("msub", "mspace", "mi")]
    assert extension.to_mathml(r"\|a\|", as_block=False).count('stretchy="false"') == 2
    assert "stretchy" not in extension.to_mathml(r"\left\|a\right\|", as_block=False)


COURSE = EXTENSIONS.parent / "course"


@pytest.mark.parametrize("extension", ["notebooks"], indirect=True)
def test_a_notebook_has_the_cells_of_its_chapter_and_what_they_import(extension: ModuleType) -> None:
    for chapter in sorted(COURSE.glob("[0-9][0-9]_*.md")):
        source = chapter.read_text()
        cells = [cell.source for cell in extension.notebook(source, COURSE).cells if cell.cell_type == "code"]
        written = [cell for cell in cells if cell.startswith("%%writefile ")]
        assert len(cells) - len(written) == source.count("```{code-cell}")
        for cell in cells[len(written) :]:
            ast.parse(cell)
        own = {module for module in ("_style", "_diagrams") if re.search(rf"(import|from) {module}\b", source)}
        assert own <= {cell.split()[1].removesuffix(".py") for cell in written}


@pytest.mark.parametrize("extension", ["notebooks"], indirect=True)
def test_a_notebook_of_a_repository_installs_chainrule_and_opens_in_colab_and_binder(extension: ModuleType) -> None:
    source = (COURSE / "07_search.md").read_text()
    first, *_ = extension.notebook(source, COURSE, "someone/chainrule").cells
    assert first.source == '%pip install -q "chainrule[app,plots] @ git+https://github.com/someone/chainrule"'
    line = extension.links("07_search", "someone/chainrule")
    assert "colab.research.google.com/github/someone/chainrule/blob/gh-pages/_notebooks/07_search.ipynb" in line
    assert "mybinder.org/v2/gh/someone/chainrule/gh-pages?labpath=_notebooks/07_search.ipynb" in line
    assert "colab" not in extension.links("07_search", None)


def test_flags_keep_their_two_hyphens() -> None:
    [action] = re.findall(r'^smartquotes_action = "(\w+)"', (EXTENSIONS.parent / "conf.py").read_text(), re.MULTILINE)
    assert "D" not in action  # else Sphinx makes dashes of them


def test_works_of_further_reading_have_links() -> None:
    for chapter in sorted(COURSE.glob("[0-9][0-9]_*.md")):
        _, _, works = chapter.read_text("utf-8").partition("## Further reading\n")
        entries = re.split(r"^- ", works, flags=re.MULTILINE)[1:]
        assert entries, chapter
        assert not [entry for entry in entries if "](" not in entry], chapter


@pytest.mark.slow
@pytest.mark.parametrize("extension", ["notebooks"], indirect=True)
def test_a_notebook_runs_in_an_empty_folder(extension: ModuleType, tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient")
    notebook = extension.notebook((COURSE / "07_search.md").read_text(), COURSE)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert (tmp_path / "_style.py").read_text() == (COURSE / "_style.py").read_text()


@pytest.mark.slow  # a small manual is built
def test_captions_are_headings_with_a_level_and_lines_of_signatures_no_definitions(tmp_path: Path) -> None:
    build = pytest.importorskip("sphinx.cmd.build")
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(EXTENSIONS)!r})\nextensions = ['accessible']\nhtml_theme = 'furo'\n"
        f"templates_path = [{str(EXTENSIONS.parent / '_templates')!r}]\npython_maximum_signature_line_length = 20\n",
        "utf-8",
    )
    (tmp_path / "index.rst").write_text("Home\n====\n\n.. toctree::\n   :caption: Start\n\n   other\n", "utf-8")
    signature = ".. py:function:: long(first: int, second: int)"
    corner = ".. csv-table::\n   :header: , size\n\n   cat, 4"
    (tmp_path / "other.rst").write_text(f"Other\n=====\n\n{signature}\n\n{corner}\n", "utf-8")
    assert build.build_main(["-q", "-b", "html", str(tmp_path), str(tmp_path / "html")]) == 0
    for name in ("index.html", "other.html"):
        text = (tmp_path / "html" / name).read_text("utf-8")
        assert re.findall('<p class="caption"([^>]*)>', text)
        assert set(re.findall('<p class="caption"([^>]*)>', text)) == {' role="heading" aria-level="2"'}
    assert text.count('<span class="sig-line">') == 2
    assert "<dl>" not in text
    assert re.findall("<th[ >].*</th>", text) == ['<th class="head"><p>size</p></th>']
    assert "<h1>Search</h1>" in (tmp_path / "html" / "search.html").read_text("utf-8")
