"""References to where a public name is defined lead to its page: `layers._lstm.LSTM` is `layers.LSTM`.

Signatures show `int`, not `Annotated[int, Range(1, 64)]`: the range is for the command line.
"""

import re
from importlib import import_module
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

PACKAGES = (
    "coding",
    "data",
    "data.synthetic",
    "decoding",
    "diagnostics",
    "heads",
    "layers",
    "metrics",
    "models",
    "testing",
    "training",
)


def public_names() -> dict[str, str]:
    """The public name of each object by the name of its definition."""
    found = {}
    for package in ("chainrule", *(f"chainrule.{name}" for name in PACKAGES), "chainrule_app"):
        module = import_module(package)
        for name in module.__all__:
            made = getattr(module, name)
            if hasattr(made, "__qualname__"):
                found.setdefault(f"{made.__module__}.{made.__qualname__}", f"{package}.{name}")
    return found


def resolve(app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element) -> nodes.Node | None:
    """A link to the public page; plain text for what is private, which has none."""
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py" or not target.startswith(("chainrule.", "chainrule_app.")):
        return None
    known: dict[str, str] = env.chainrule_public_names  # type: ignore[attr-defined]
    owner, _, member = target.rpartition(".")
    for name in (known.get(target), f"{known[owner]}.{member}" if owner in known else None):
        if name is not None:
            domain = env.get_domain("py")
            return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, content)
    return content if any(part.startswith("_") for part in target.split(".")) else None


def without_ranges(*event: Any) -> tuple[str, str] | None:
    """A signature whose annotations have no ranges."""
    signature, result = event[-2:]
    return signature and (re.sub(r"~?[\w.]*Annotated\[([\w.~]+), [^\]]*\]", r"\1", signature), result)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect both."""
    app.connect("autodoc-process-signature", without_ranges)
    app.connect("env-updated", lambda app, env: setattr(env, "chainrule_public_names", public_names()))
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
