"""`{program-help} VERB`: what `chainrule VERB --help` prints, run at build time so that the page cannot fall behind."""

import os
import subprocess
import sys
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class ProgramHelp(SphinxDirective):
    """A literal block with the help text of a verb."""

    required_arguments = 0
    optional_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        """Run the program and show what it prints."""
        command = [sys.executable, "-m", "chainrule", *self.arguments, "--help"]
        environment = os.environ | {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
        printed = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        if printed.returncode != 0:
            raise self.error(
                f"{' '.join(command[1:])} ended with status {printed.returncode}: {printed.stderr.strip()}"
            )
        text = "\n".join(line.rstrip() for line in printed.stdout.strip("\n").splitlines())
        return [nodes.literal_block(text, text, language="text", classes=["program-help"])]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("program-help", ProgramHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
