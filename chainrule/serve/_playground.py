"""Routes of the playground that the API lacks: symbols with alternatives, images pixel by pixel, rows with gaps.

All of them are below /playground. What streams is one JSON object a line (application/x-ndjson).
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, HTTPException
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from chainrule._app.run import Run
from chainrule.data._vocabulary import Beginning
from chainrule.serve import _playground_answers as answers
from chainrule.serve import _playground_latent as latent
from chainrule.serve import _playground_media as media
from chainrule.serve import _playground_text as texts
from chainrule.serve._guard import final_error
from chainrule.serve._routes import bytes_of, finite
from chainrule.serve._state import ServerState
from chainrule.serve._stream import Request as TextRequest

STATIC = Path(__file__).parent / "static"

# The page loads its own files alone and sends requests to its own server alone; its scripts make images and sounds.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; media-src blob:; object-src 'none'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
T = TypeVar("T")

Seed = Annotated[int, Field(ge=0, lt=1 << 31)]
Count = Annotated[int, Field(ge=0, lt=1 << 31)]
Text = Annotated[str, Field(max_length=1 << 18)]
Temperature = Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)]
TopP = Annotated[float, Field(gt=0, le=1)] | None


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")
    run: str


class TextBody(_Body):
    """A text to draw: after a prompt, or after symbols whose last may differ from the drawn one."""

    prompt: Text = ""
    symbols: Annotated[list[Count], Field(max_length=1 << 16)] | None = None
    session: str | None = None
    max_tokens: Annotated[int, Field(ge=1, lt=1 << 31)] = 200
    temperature: Temperature = 1.0
    top_k: Annotated[int, Field(ge=1)] | None = None
    top_p: TopP = None
    seed: Seed = 0


class InsideBody(_Body):
    """A unit or a head to look into."""

    symbols: Annotated[list[Count], Field(min_length=1, max_length=texts.LONGEST_INSPECTED)]
    layer: Count = 0
    unit: Count = 0


class DrawBody(_Body):
    """Images to draw; see `chainrule.serve._playground_media.Drawing`."""

    n: Annotated[int, Field(ge=1, le=16)] = 1
    seed: Seed = 0
    temperature: Temperature = 1.0
    label: Count | None = None
    pixels: Annotated[str, Field(max_length=1 << 20)] = ""
    known: Annotated[str, Field(max_length=1 << 20)] = ""


class NumberBody(_Body):
    """A number of an example."""

    number: Count = 0


class CodeBody(_Body):
    """A latent code."""

    code: Annotated[list[Annotated[float, Field(allow_inf_nan=False)]], Field(max_length=1 << 10)]
    seed: Seed = 0


class SoundBody(_Body):
    """A sound to draw; see `chainrule.serve._playground_media.SoundRequest`."""

    seconds: Annotated[float, Field(ge=0, le=1e6)]
    prompt: Annotated[str, Field(max_length=1 << 22)] = ""
    label: Count | None = None
    temperature: Temperature = 1.0
    top_p: TopP = None
    seed: Seed = 0


class RowBody(_Body):
    """Cells of a row; missing ones are left out, or empty."""

    cells: dict[str, Annotated[str, Field(max_length=1 << 12)]] = Field(default_factory=dict)
    n: Annotated[int, Field(ge=1, le=1000)] = 200
    seed: Seed = 0


class AnswerBody(_Body):
    """A text to answer."""

    text: Text
    beam: Annotated[int, Field(ge=1, le=16)] = 4


class ImageBody(_Body):
    """An image file to answer, in base64."""

    image: Annotated[str, Field(max_length=1 << 23)]


class SeriesBody(_Body):
    """A series to forecast: pasted, or the run's own rows."""

    text: Text = ""
    back: Count = 0
    paths: Annotated[int, Field(ge=2, le=1000)] = 200
    seed: Seed = 0


def playground_router(state: ServerState) -> APIRouter:
    """Return the routes of the page."""
    router = APIRouter()
    sessions = {name: texts.Sessions() for name in state.engines}

    def run_of(body: _Body, *views: str) -> Run:
        """Return the run that a request names, if it has one of these views."""
        if body.run not in state.runs:
            raise HTTPException(404, f"there is no run {body.run!r}")
        run = state.runs[body.run]
        if view_of(run, has_engine=body.run in state.engines) not in views:
            raise HTTPException(400, f"a run of the task {run.task.name} cannot do this")
        return run

    async def answer(function: Any, /, *arguments: Any) -> Any:
        return finite(await state.call(function, *arguments))

    @router.get("/", include_in_schema=False)
    def page() -> FileResponse:
        headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Referrer-Policy": "no-referrer"}
        return FileResponse(STATIC / "index.html", headers=headers)

    @router.get("/playground/runs")
    async def list_runs() -> Any:
        listing = [await state.call(about, name, run, name in state.engines) for name, run in state.runs.items()]
        return {"runs": finite(listing)}

    @router.post("/playground/text")
    async def text(body: TextBody) -> StreamingResponse:
        run_of(body, "text")
        engine = state.engines[body.run]
        anew = body.symbols is None
        given = engine.begin(body.prompt)[0] if anew else Beginning(engine.vocabulary.check_ids(body.symbols or ()))
        request = TextRequest(
            given.ids.tolist(),
            body.max_tokens,
            rest=given.rest,
            covers=given.covers,
            temperature=body.temperature,
            top_k=body.top_k,
            top_p=body.top_p,
            seed=body.seed,
            alternatives=texts.ALTERNATIVES,
            score_prompt=anew,
            keep_states=True,
        )
        return lines(texts.stream_text(engine, sessions[body.run], request, body.session), state)

    @router.post("/playground/read")
    async def read(body: AnswerBody) -> StreamingResponse:
        run_of(body, "text")
        return lines(texts.read_text(state.engines[body.run], body.text), state)

    @router.post("/playground/inside")
    async def inside(body: InsideBody) -> Any:
        run = run_of(body, "text")
        kind = texts.insides(run).get("kind")
        if kind is None:
            raise HTTPException(400, f"a {run.task.config.model} has no gates or heads that can be shown")
        look = texts.gates_of if kind == "units" else texts.attention_of
        return await answer(look, run, body.symbols, body.layer, body.unit)

    @router.post("/playground/draw")
    async def draw(body: DrawBody) -> StreamingResponse:
        run = run_of(body, "image")
        drawing = media.Drawing(body.n, body.seed, body.temperature, body.label, body.pixels, body.known)
        return lines(media.stream_images(state, run, drawing), state)

    @router.post("/playground/image-example")
    async def image_example(body: NumberBody) -> Any:
        return await answer(media.example_image, run_of(body, "image"), body.number)

    @router.post("/playground/decode")
    async def decode(body: CodeBody) -> Any:
        return await answer(latent.decode, run_of(body, "latent"), body.code, body.seed)

    @router.post("/playground/encode-example")
    async def encode_example(body: NumberBody) -> Any:
        return await answer(latent.encode_example, run_of(body, "latent"), body.number)

    @router.post("/playground/encode-text")
    async def encode_text(body: AnswerBody) -> Any:
        run = run_of(body, "latent")
        if run.task.name != "text":
            raise HTTPException(400, f"a run of the task {run.task.name} cannot do this")
        return await answer(latent.encode_text, run, body.text)

    @router.post("/playground/sound")
    async def sound(body: SoundBody) -> StreamingResponse:
        run = run_of(body, "sound")
        request = media.SoundRequest(**body.model_dump(exclude={"run"}))
        return lines(media.stream_sound(state, run, request), state)

    @router.post("/playground/sound-example")
    async def sound_example(body: NumberBody) -> Any:
        return await answer(media.example_sound, run_of(body, "sound"), body.number)

    @router.post("/playground/complete-row")
    async def complete_row(body: RowBody) -> Any:
        return await answer(answers.complete_row, run_of(body, "table"), body.cells, body.n, body.seed)

    @router.post("/playground/score-row")
    async def score_row(body: RowBody) -> Any:
        return await answer(answers.score_row, run_of(body, "table"), body.cells)

    @router.post("/playground/sample-row")
    async def sample_row(body: RowBody) -> Any:
        return await answer(answers.sample_row, run_of(body, "table"), body.seed)

    @router.post("/playground/answer")
    async def answer_text(body: AnswerBody) -> Any:
        run = run_of(body, "tag", "classify", "translate")
        if run.task.name == "translate":
            return await answer(answers.translate_text, run, body.text, body.beam)
        return await answer(answers.tag_sentence if run.task.name == "tag" else answers.classify_text, run, body.text)

    @router.post("/playground/answer-image")
    async def answer_image(body: ImageBody) -> Any:
        run = run_of(body, "classify-images", "caption")
        look = answers.caption_image if run.task.name == "caption" else answers.classify_image
        return await answer(look, run, bytes_of(body.image, "image"))

    @router.post("/playground/forecast")
    async def forecast(body: SeriesBody) -> Any:
        run = run_of(body, "forecast")
        if body.text.strip():
            return await answer(answers.forecast_text, run, body.text, body.paths, body.seed)
        return await answer(answers.forecast_own, run, body.back, body.paths, body.seed)

    return router


def view_of(run: Run, *, has_engine: bool) -> str:
    """Return the view of a run in the playground; empty if it has no view."""
    if getattr(run.task, "has_code", False):
        return "latent"
    return "" if run.task.name == "music" or (run.task.name == "text" and not has_engine) else run.task.name


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
    }


def _facts(view: str, run: Run) -> dict[str, Any]:
    match view:
        case "text":
            return texts.about_text(run)
        case "image":
            return media.about_images(run)
        case "latent":
            return (media.about_images(run) if run.task.name == "image" else {}) | latent.about_latent(run)
        case "sound":
            return media.about_sounds(run)
        case "table":
            return answers.about_table(run)
        case "forecast":
            return answers.about_series(run)
    return {}


def lines(records: AsyncGenerator[Mapping[str, Any], None], state: ServerState) -> StreamingResponse:
    """Return a stream of JSON lines that ends at the limit of seconds; an error becomes the last line."""

    async def written() -> AsyncIterator[bytes]:
        try:
            async with aclosing(records), asyncio.timeout(state.limits.seconds):
                async for record in records:
                    yield json.dumps(finite(record)).encode() + b"\n"
        except Exception as error:
            message = final_error(error, state.paths)["error"]["message"]
            yield json.dumps({"error": message}).encode() + b"\n"

    return StreamingResponse(written(), media_type="application/x-ndjson")
