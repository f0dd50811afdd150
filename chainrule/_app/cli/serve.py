"""`chainrule serve RUN...`: a page to play with trained runs, and an API."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from chainrule._app.cli.signature import joined_help
from chainrule._app.tasks import open_run
from chainrule._app.tasks.display import Verb
from chainrule._app.tasks.task import Task

_NEEDED = ("fastapi", "uvicorn", "prometheus_client")


def serve_verb(task: type[Task[Any]]) -> Verb:
    """Serve runs: a page to play with in a browser, OpenAI-compatible completions, and every capability as JSON."""
    serve.__doc__ = joined_help(serve.__doc__ or "", "")  # paragraphs in a line each, as in all verbs
    return serve


def serve(
    *runs: Path,
    port: int = 8000,
    host: str = "127.0.0.1",
    token: str | None = None,
    open_page: Annotated[bool, Parameter(name="--open", negative=())] = False,
) -> None:
    """Serve trained runs: a page to play with in a browser, OpenAI-compatible completions, and a JSON API.

    Needs three packages: pip install fastapi uvicorn prometheus-client. Ctrl-C stops the server.

    Args:
        runs: Run directories, of any tasks.
        port: Port to listen on; 0 takes a free one.
        host: Address or name to listen on; any but the default lets other machines reach the server.
        token: Secret that every request must carry (Authorization: Bearer TOKEN); not required by default.
        open_page: Open the page in a browser.
    """
    if not runs:
        raise ValueError("RUN: expected at least one run directory, got none")
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise ValueError(f"serve: needs packages that are not installed: pip install {' '.join(missing)}")
    if not 0 <= port <= 65535:
        raise ValueError(f"port: expected 0 to 65535, got {port}")
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise ValueError("token: expected printable ASCII characters without surrounding blanks")
    for path in runs:
        open_run(path)  # what is no run is told before torch is imported
    from chainrule._app.fitting import load
    from chainrule.serve._server import serve_runs

    runs_by_name = {}
    for path in runs:
        name = path.resolve().name
        if name in runs_by_name:
            raise ValueError(f"{path}: another run is called {name} too: rename one of the two directories")
        runs_by_name[name] = load(path)
    serve_runs(runs_by_name, host=host, port=port, token=token, open_page=open_page)
