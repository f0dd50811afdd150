"""The application: routes, the checks before them, and the answers to errors."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from chainrule._app.run import Run
from chainrule.serve._errors import answer_errors
from chainrule.serve._guard import Guard
from chainrule.serve._limits import Limits
from chainrule.serve._metrics import Metrics
from chainrule.serve._openai import openai_router
from chainrule.serve._playground import STATIC, playground_router
from chainrule.serve._routes import runs_router
from chainrule.serve._state import ServerState


def create_app(
    runs: Mapping[str, Run], *, token: str | None = None, hosts: tuple[str, ...] = (), limits: Limits | None = None
) -> FastAPI:
    """Make an application that serves runs, for uvicorn or another ASGI server.

    Its workers begin with it, and end with the server.

    Args:
        runs: by the names under which they are served.
        token: that every request has to bear; none is needed if not given.
        hosts: names that a request may call this server by, besides localhost and addresses.
        limits: of requests.
    """
    state, registry = ServerState(runs, limits or Limits()), CollectorRegistry()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        state.close()

    # No pages of documentation: they load scripts from other servers.
    app = FastAPI(title="chainrule", docs_url=None, redoc_url=None, lifespan=lifespan)
    app.state.server = state
    answer_errors(app)

    @app.get("/healthz")
    async def healthz() -> JSONResponse:
        return JSONResponse({"status": "ok" if state.alive else "a worker has died"}, 200 if state.alive else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    app.include_router(runs_router(state))
    app.include_router(openai_router(state))
    app.include_router(playground_router(state))
    files = [f"/{path.relative_to(STATIC).as_posix()}" for path in STATIC.rglob("*") if path.is_file()]
    app.mount("/", StaticFiles(directory=STATIC, html=True), name="page")
    app.add_middleware(Guard, hosts=hosts, token=token, public=("/", "/healthz", *files), limits=state.limits)
    app.add_middleware(Metrics, state=state, registry=registry)
    return app
