"""What the views of the playground share: bodies of requests, the run that one names, its answer or stream."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import HTTPException, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from chainrule_app.run import Run
from chainrule_app.serve.guard import final_error, while_wanted
from chainrule_app.serve.routes import finite
from chainrule_app.serve.state import ServerState

Seed = Annotated[int, Field(ge=0, lt=1 << 31)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
Text = Annotated[str, Field(max_length=1 << 18)]
Temperature = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
TopP = Annotated[float, Field(gt=0, le=1)] | None


class Body(BaseModel):
    """A request about a run."""

    model_config = ConfigDict(extra="forbid")
    run: str


class NumberBody(Body):
    """A number of an example."""

    number: Count = 0


class TextBody(Body):
    """A text to read."""

    text: Text


def view_of(run: Run, *, has_engine: bool) -> str:
    """Return the view of a run in the playground; empty if it has no view."""
    if getattr(run.task, "has_code", False):
        return "latent"
    name = run.task.name
    return "" if name == "text" and not has_engine else name


class Views:
    """The runs of a server as the views see them."""

    def __init__(self, state: ServerState):
        self.state = state

    def run(self, body: Body, *views: str) -> Run:
        """Return the run that a request names, if it has one of these views."""
        run = self.state.run(body.run)
        if view_of(run, has_engine=body.run in self.state.engines) not in views:
            raise HTTPException(400, f"a run of the task {run.task.name} cannot do this")
        return run

    async def answer(self, request: Request, function: Callable[..., Any], /, *arguments: Any) -> Any:
        """Return what a function says, as JSON; it is stopped where the client leaves."""
        work = self.state.call(function, *arguments)
        return finite(await while_wanted(request.receive, work, self.state.limits.seconds))

    def lines(self, records: AsyncGenerator[Mapping[str, Any], None]) -> StreamingResponse:
        """Return a stream of JSON lines that ends at the limit of seconds; an error becomes the last line."""

        async def written() -> AsyncIterator[bytes]:
            try:
                async with aclosing(records), asyncio.timeout(self.state.limits.seconds):
                    async for record in records:
                        yield json.dumps(finite(record)).encode() + b"\n"
            except Exception as error:
                message = final_error(error, self.state.paths)["error"]["message"]
                yield json.dumps({"error": message}).encode() + b"\n"

        return StreamingResponse(written(), media_type="application/x-ndjson")
