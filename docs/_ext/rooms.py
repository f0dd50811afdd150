"""`{rooms}`: a picture of the packages and of which imports which, drawn from their imports at build time."""

import ast
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
WIDE, HIGH, ACROSS, DOWN = 118, 34, 138, 84


def room(module: str) -> str:
    """The package of a module; empty for the contract, which all packages share."""
    parts = module.split(".")
    if not (ROOT / parts[0] / (parts[1:2] or ["."])[0]).is_dir() or len(parts) < 2:
        return "app" if parts[0] == "chainrule_app" else ""
    return f"app/{parts[1]}" if parts[0] == "chainrule_app" else parts[1]


def imports() -> dict[str, set[str]]:
    """The packages that each package imports when it is imported."""
    found: dict[str, set[str]] = {}
    for path in [*(ROOT / "chainrule").rglob("*.py"), *(ROOT / "chainrule_app").rglob("*.py")]:
        own = room(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("chainrule"):
                for name in node.names:
                    found.setdefault(own, set()).add(room(f"{node.module}.{name.name}"))
    return {name: needed - {name, ""} for name, needed in found.items() if name}


def direct(edges: dict[str, set[str]]) -> dict[str, set[str]]:
    """The arrows that no path of other arrows replaces."""

    def reaches(start: str, goal: str, seen: set[str]) -> bool:
        others = edges.get(start, set()) - seen
        return goal in others or any(reaches(other, goal, seen | others) for other in others)

    return {
        name: {one for one in needed if not any(reaches(other, one, {name, other}) for other in needed - {one})}
        for name, needed in edges.items()
    }


def picture() -> str:
    """The map as SVG: a package stands above everything that it imports."""
    edges = imports()
    names = sorted({*edges, *(name for needed in edges.values() for name in needed)})
    level = dict.fromkeys(names, 0)
    for _ in names:  # the longest path down
        for name, needed in edges.items():
            level[name] = max([level[name], *(level[one] + 1 for one in needed)])
            level[name] = min(level[name], len(names))
    rows = [[name for name in names if level[name] == row] for row in sorted(set(level.values()), reverse=True)]
    width = max(map(len, rows)) * ACROSS
    place = {
        name: ((width - len(row) * ACROSS) / 2 + column * ACROSS + ACROSS / 2, number * DOWN + HIGH)
        for number, row in enumerate(rows)
        for column, name in enumerate(row)
    }
    lines = [
        f'<line x1="{place[name][0]:.0f}" y1="{place[name][1] + HIGH / 2:.0f}" x2="{place[one][0]:.0f}" '
        f'y2="{place[one][1] - HIGH / 2:.0f}" stroke="currentColor" stroke-opacity="0.35" marker-end="url(#arrow)"/>'
        for name, needed in direct(edges).items()
        for one in needed
    ]
    boxes = [
        f'<rect x="{x - WIDE / 2:.0f}" y="{y - HIGH / 2:.0f}" width="{WIDE}" height="{HIGH}" rx="6" '
        f'fill="{"#8884" if name.startswith("app") else "#1f6feb33"}" stroke="currentColor" stroke-opacity="0.5"/>'
        f'<text x="{x:.0f}" y="{y + 5:.0f}" text-anchor="middle" fill="currentColor" font-size="14">{name}</text>'
        for name, (x, y) in place.items()
    ]
    arrow = (
        '<marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0L8 4L0 8z" fill="currentColor"/></marker>'
    )
    return (
        f'<svg viewBox="0 0 {width} {len(rows) * DOWN}" width="{width}" style="max-width:100%" role="img" '
        f'aria-label="Packages and their imports"><defs>{arrow}</defs>{"".join(lines)}{"".join(boxes)}</svg>'
    )


class Rooms(SphinxDirective):
    """The picture."""

    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Draw it."""
        return [nodes.raw("", picture(), format="html")]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("rooms", Rooms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
