"""The page and its list of runs; each view has its own routes, for what the API lacks.

All of them are below /playground. What streams is one JSON object a line (application/x-ndjson).
"""

from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse

from chainrule_app.run import Run
from chainrule_app.serve import playground_answers as answers
from chainrule_app.serve import playground_latent as latent
from chainrule_app.serve import playground_media as media
from chainrule_app.serve import playground_music as music
from chainrule_app.serve import playground_pictures as pictures
from chainrule_app.serve import playground_text as texts
from chainrule_app.serve.guard import final_error
from chainrule_app.serve.playground_examples import examples_of
from chainrule_app.serve.playground_training import training_router
from chainrule_app.serve.state import ServerState
from chainrule_app.serve.views import Views, view_of

STATIC = Path(__file__).parent / "static"

# The page loads its own files alone and sends requests to its own server alone; its scripts make images and sounds.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; media-src blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)


def playground_router(state: ServerState) -> APIRouter:
    """Return the routes of the page and of all its views."""
    router, views = APIRouter(), Views(state)

    @router.get("/", include_in_schema=False)
    def page() -> FileResponse:
        headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Referrer-Policy": "no-referrer"}
        return FileResponse(STATIC / "index.html", headers=headers)

    @router.get("/playground/runs")
    async def list_runs(request: Request) -> Any:
        if state.training:
            state.add(await state.call(state.trained))
        known = [await entry(name, run, request) for name, run in list(state.runs.items())]
        rest = {name: run for name, run in state.training.items() if name not in state.runs}
        return {"runs": known + [_without_model(name, run) | {"view": "training"} for name, run in rest.items()]}

    async def entry(name: str, run: Run, request: Request) -> Any:
        """Describe a run; one that is damaged or gone says so and hides no other."""
        try:
            state.run(name)
            return await views.answer(request, about, name, run, name in state.engines)
        except Exception as error:
            problem = final_error(error, state.paths)["error"]["message"]
            return _without_model(name, run) | {"view": "", "problem": problem}

    view_routers = (texts.text_router, media.image_router, media.sound_router, music.music_router, latent.latent_router)
    answer_routers = (answers.table_router, answers.answer_router, answers.forecast_router, pictures.picture_router)
    for make in (*view_routers, *answer_routers, training_router):
        router.include_router(make(views), prefix="/playground")
    return router


def _without_model(name: str, run: Run) -> dict[str, Any]:
    known = {"name": name, "task": run.task.name, "model": run.task.config.model}
    return known | {"best": "", "facts": {}, "examples": []}


def about(name: str, run: Run, has_engine: bool) -> dict[str, Any]:
    """Describe a run for the page: its view, the facts that the view needs, and its best figure."""
    best, view = run.task.held_out(), view_of(run, has_engine=has_engine)
    return {
        "name": name,
        "task": run.task.name,
        "model": run.task.config.model,
        "best": "" if best is None else f"{best.nats_per_element:.4f} {best.basis.per}, held out",
        "view": view,
        "facts": _facts(view, run),
        "examples": examples_of(run),
    }


def _facts(view: str, run: Run) -> dict[str, Any]:
    match view:
        case "text":
            return texts.about_text(run)
        case "image":
            return media.about_images(run)
        case "latent":
            return media.about_images(run) | latent.about_latent(run)
        case "sound":
            return media.about_sounds(run)
        case "music":
            return music.about_music(run)
        case "table":
            return answers.about_table(run)
        case "forecast":
            return answers.about_series(run)
    return {}
