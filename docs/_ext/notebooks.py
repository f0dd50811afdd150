"""Chapters as notebooks that open anywhere: `_notebooks/CHAPTER.ipynb`, which begins by writing what it imports.

Each page of the course links its own at the top. Where CHAINRULE_REPOSITORY names a repository on GitHub (owner/name)
whose branch `gh-pages` holds this manual, it links Colab and Binder too, and a notebook begins by installing chainrule.
"""

import os
import re
from pathlib import Path
from typing import Any

import nbformat
from sphinx.application import Sphinx

FOLDER = "_notebooks"
BESIDE = ("_style.py", "_diagrams.py", "_sliders.js")
# A cell, without its options.
_CELL = re.compile(r"^```\{code-cell\}\n(?:---\n.*?\n---\n|(?::\w+:[^\n]*\n)+)?(.*?)^```$", re.DOTALL | re.MULTILINE)


def needed(repository: str | None) -> str:
    """What pip installs for the course."""
    return "chainrule[app,plots]" + (f" @ git+https://github.com/{repository}" if repository else "")


def notebook(source: str, folder: Path, repository: str | None = None) -> nbformat.NotebookNode:
    """The notebook of a chapter, which needs chainrule alone, and installs it from its repository if there is one."""
    body = re.sub(r"\A---\n.*?\n---\n", "", source, flags=re.DOTALL)
    make = nbformat.v4
    if repository:
        cells = [make.new_code_cell(f'%pip install -q "{needed(repository)}"')]
    else:
        cells = [make.new_markdown_cell(f"Needs `pip install '{needed(None)}'`. The next cells write what it imports.")]
    cells += [
        make.new_code_cell(f"%%writefile {name}\n{(folder / name).read_text(encoding='utf-8')}")
        for name in BESIDE
        if name.split(".")[0] in body or name.endswith(".js")
    ]
    at = 0
    for match in _CELL.finditer(body):
        cells += _words(body[at : match.start()])
        cells.append(make.new_code_cell(match[1].rstrip("\n")))
        at = match.end()
    cells += _words(body[at:])
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return make.new_notebook(cells=cells, metadata={"kernelspec": kernel})


def _words(text: str) -> list[nbformat.NotebookNode]:
    return [nbformat.v4.new_markdown_cell(text.strip())] if text.strip() else []


def chapters(app: Sphinx) -> list[Path]:
    """The sources of the course that have cells."""
    return sorted(Path(app.srcdir, "course").glob("[0-9][0-9]_*.md"))


def write(app: Sphinx, error: Exception | None) -> None:
    """Write all notebooks beside the built pages."""
    if error is not None or app.builder.format != "html":
        return
    home = Path(app.outdir, FOLDER)
    home.mkdir(exist_ok=True)
    repository = os.environ.get("CHAINRULE_REPOSITORY")
    for chapter in chapters(app):
        made = notebook(chapter.read_text(encoding="utf-8"), chapter.parent, repository)
        nbformat.write(made, home / f"{chapter.stem}.ipynb")
    if repository:  # what Binder builds
        Path(app.outdir, "requirements.txt").write_text(f"{needed(repository)}\n", encoding="utf-8")
        Path(app.outdir, "runtime.txt").write_text("python-3.11\n", encoding="utf-8")


def links(name: str, repository: str | None) -> str:
    """The line below the title of a chapter."""
    text = f'<a href="../{FOLDER}/{name}.ipynb" download>This chapter as a notebook</a>, for any folder'
    if repository:
        colab = f"https://colab.research.google.com/github/{repository}/blob/gh-pages/{FOLDER}/{name}.ipynb"
        binder = f"https://mybinder.org/v2/gh/{repository}/gh-pages?labpath={FOLDER}/{name}.ipynb"
        text += f', <a href="{colab}">in Colab</a> or <a href="{binder}">in Binder</a>'
    return f"<p>{text}.</p>"


def link(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Begin a chapter with links to its notebook."""
    name = page.removeprefix("course/")
    if "body" not in context or not any(name == chapter.stem for chapter in chapters(app)):
        return
    line = links(name, os.environ.get("CHAINRULE_REPOSITORY"))
    context["body"] = context["body"].replace("</h1>", f"</h1>\n{line}", 1)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both."""
    app.connect("html-page-context", link)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
