"""The course: its chapters, and the diagrams that they draw."""

import inspect
import re
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

COURSE = Path(__file__).parents[1] / "docs" / "course"
CHAPTERS = sorted(COURSE.glob("[0-9][0-9]_*.md"))


@pytest.fixture(scope="module")
def diagrams() -> ModuleType:
    spec = spec_from_file_location("_diagrams", COURSE / "_diagrams.py")
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def drawn_by(diagrams: ModuleType, kind: type) -> list[str]:
    functions = inspect.getmembers(diagrams, inspect.isfunction)
    return [name for name, function in functions if function.__annotations__.get("return") is kind]


def test_each_diagram_and_figure_with_sliders_stands_in_one_chapter(diagrams: ModuleType) -> None:
    chapters = "\n".join(page.read_text() for page in CHAPTERS)
    drawn = Counter(re.findall(r"^diagrams\.(\w+)\(", chapters, re.MULTILINE))
    pictures, moving = drawn_by(diagrams, diagrams.Diagram), drawn_by(diagrams, diagrams.Sliders)
    assert (len(pictures), len(moving)) == (20, 6)
    assert drawn == Counter([*pictures, *moving])


def test_the_script_has_each_figure_with_sliders(diagrams: ModuleType) -> None:
    script = (COURSE / "_sliders.js").read_text()
    figures = re.findall(r"^    (\w+): \{$", script, re.MULTILINE)
    assert sorted(figures) == sorted(drawn_by(diagrams, diagrams.Sliders))


@pytest.mark.parametrize(
    "name", ["unrolled", "lstm_cell", "gru_cell", "sequence_types", "teacher_forcing", "attention_decoder"]
)
def test_diagrams_stay_inside_their_frame_and_describe_themselves(diagrams: ModuleType, name: str) -> None:
    diagram = getattr(diagrams, name)()
    picture = ElementTree.fromstring(diagram.svg())
    assert (picture.get("role"), picture.get("aria-label")) == ("img", diagram.alt)
    assert diagram.alt
    assert diagram.caption
    width, height = map(int, (picture.get("viewBox") or "").split()[2:])
    for shape in picture.iter():
        for key, limit in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            assert 0 <= float(shape.get(key, 0)) <= limit, (shape.tag, shape.attrib)


def test_an_index_is_written_below_its_letter(diagrams: ModuleType) -> None:
    diagram = diagrams.Diagram(20, "", "")
    diagram.text(10, 10, "a_{t-1} + b_t")
    spans = [
        (part.text, part.get("dy"))
        for part in ElementTree.fromstring(diagram.svg()).iter()
        if part.tag.endswith("tspan")
    ]
    assert spans == [("a", None), ("t-1", "4"), (" + b", "-4"), ("t", "4")]


def test_the_course_lists_its_chapters_in_order_and_their_titles_have_their_numbers() -> None:
    listed = re.findall(r"^(\d\d_\w+)$", (COURSE / "index.md").read_text(), re.MULTILINE)
    assert listed == [page.stem for page in CHAPTERS]
    for number, page in enumerate(CHAPTERS, 1):
        assert f"\n# {number}. " in page.read_text()


def test_the_gallery_has_thirty_examples_that_run() -> None:
    text = (COURSE.parent / "gallery.md").read_text()
    examples = re.split(r"^### (\d+)\. ", text, flags=re.MULTILINE)[1:]
    assert [int(number) for number in examples[::2]] == list(range(1, 31))
    assert all("```{code-cell}" in example for example in examples[1::2])


def test_thirty_questions_have_folded_answers() -> None:
    text = (COURSE / "questions.md").read_text()
    questions = re.findall(r"^\*\*(\d+)\. .+\*\*\n\n<details><summary>Answer", text, re.MULTILINE)
    assert questions == [str(number) for number in range(1, 31)]
