"""Help of verbs, and completion of their options in a shell."""

from typing import TYPE_CHECKING, Any

from chainrule.files import write_text
from chainrule_app.printing import quoted

if TYPE_CHECKING:
    from cyclopts import App
    from cyclopts.help import HelpPanel
    from rich.console import Console, ConsoleOptions


class FoldedHelp:
    """Help of cyclopts whose texts wrap at spaces only, not at a docstring's own line ends."""

    def render_description(self, console: "Console", options: "ConsoleOptions", description: Any) -> None:
        """Print the description of a verb, one line per paragraph."""
        from rich.console import Group
        from rich.text import Text

        parts = description.renderables if isinstance(description, Group) else [description]
        for part in parts:
            text = getattr(part, "primary_renderable", part)
            plain = text.plain if isinstance(text, Text) else str(text)
            paragraphs = [" ".join(paragraph.split()) for paragraph in plain.strip().split("\n\n")]
            console.print(Text("\n\n".join(paragraphs) + "\n"))

    def __call__(self, console: "Console", options: "ConsoleOptions", panel: "HelpPanel") -> None:
        from cyclopts.help import DefaultFormatter
        from rich.text import Text

        for entry in panel.entries:
            text = getattr(entry.description, "primary_renderable", None)
            if isinstance(text, Text):
                entry.description.primary_renderable = Text(" ".join(text.plain.split()), end=text.end)
        DefaultFormatter()(console, options, panel)


_LOADING = {
    "bash": "bash-completion loads it in a new shell; without that package, add this line to ~/.bashrc: . {script}",
    "zsh": "add this line to ~/.zshrc, before compinit: fpath=({folder} $fpath)",
    "fish": "a new shell loads it",
    "powershell": "add this line to your profile ($PROFILE): . {script}",
}


def install_completion(app: "App") -> int:
    """Write a completion script for the verbs of a command line.

    The startup files of the shell belong to the user: a line says what to add to them.
    """
    from cyclopts.completion.detect import ShellDetectionError, detect_shell
    from cyclopts.completion.install import get_default_completion_path

    try:
        shell = detect_shell()
    except ShellDetectionError:
        raise ValueError(f"--install-completion: expected {', '.join(_LOADING)} in the variable SHELL") from None
    script = get_default_completion_path(shell, "chainrule")
    write_text(script, app.generate_completion(shell=shell))
    print(f"wrote {script}; {_LOADING[shell].format(script=quoted(script), folder=quoted(script.parent))}")
    return 0
