"""How the documentation is built: `make docs`, where every warning is an error."""

import logging
import os
import sys
from functools import partialmethod
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from jupyter_client.manager import KernelManager
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "chainrule"
author = project_copyright = "the chainrule authors"
version = release = installed_version("chainrule")

extensions = [
    "accessible",
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "mathml",
    "notebooks",
    "plots",
    "program_help",
    "public_names",
    "rooms",
    "terms",
]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb"}  # the first is that of generated pages
templates_path = ["_templates"]
autosummary_imported_members = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
exclude_patterns = ["_build", "_ext", "_templates"]
default_role = "literal"  # single backticks in docstrings are code
smartquotes_action = "qe"  # quotes and ellipses: two hyphens begin a flag, also outside code

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# The chapters of the course are notebooks. Every build runs them: an exception or a warning in a cell fails it.
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the numbers shown do not depend on the number of cores
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600  # seconds a cell: the full experiments, or a machine with other work
nb_output_stderr = "error"
nb_merge_streams = True
# Without encryption, every kernel prints a warning about it.
KernelManager.__init__ = partialmethod(KernelManager.__init__, transport_encryption="auto")
logging.getLogger("traitlets").setLevel(logging.WARNING)  # a theme's dependency lowers the level for all loggers
nb_code_prompt_show, nb_code_prompt_hide = "Show the code", "Hide the code"

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True}
autodoc_use_type_comments = False
napoleon_numpy_docstring = False
napoleon_use_rtype = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

# Names of other packages have no page here to link to; ours must have one, or be private.
nitpick_ignore_regex = [(r"py:.*", r"(?!chainrule\b).*")]
nitpick_ignore = [("py:class", f"chainrule.modes.{variable}") for variable in ("Model", "Result")]  # type variables

html_theme = "furo"
html_title = f"chainrule {version}"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_js_files = ["pages.js"]
html_copy_source = False
html_show_sphinx = False
html_logo = html_favicon = "_static/logo.svg"
html_theme_options = {"sidebar_hide_name": False}
if repository := os.environ.get("CHAINRULE_REPOSITORY"):  # owner/name on GitHub: each page links its source
    html_theme_options |= {
        "source_repository": f"https://github.com/{repository}/", "source_branch": "main", "source_directory": "docs/",
    }  # fmt: skip


def own_branch(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object) -> None:
    """Open only the branch of the sidebar that a page is in: all of them would be on each of more than 300 pages."""
    if tree := context.get("toctree"):
        context["toctree"] = lambda **options: tree(**{**options, "collapse": True})


def setup(app: Sphinx) -> None:
    """Before the theme, which asks for the whole tree."""
    app.connect("html-page-context", own_branch, priority=400)
