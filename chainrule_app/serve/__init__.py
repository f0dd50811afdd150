"""An HTTP server of trained runs: `chainrule serve RUN...`, or `chainrule_app.serve.create_app` in a program.

Needs `pip install fastapi uvicorn prometheus-client`, the extra `serve`.

Routes, NAME being the name of a run's directory:

    GET  /                        the playground: the files of the folder static/
    GET  /app.js, /style.css ...  its scripts and styles
    GET  /healthz                 {"status": "ok"} while every worker lives
    GET  /metrics                 counts and durations for Prometheus
    GET  /runs                    the runs: name, task, model, capabilities, and the limits of requests
    GET  /runs/NAME               one of them, with the JSON schema of each capability's request
    POST /runs/NAME/CAPABILITY    sample, score, tag, classify, translate, caption, forecast, evaluate, embed, ...:
                                  the method of `chainrule.Run` with its data and options as JSON
    GET  /v1/models               the runs of texts, as OpenAI's API lists models
    GET  /v1/models/NAME          one of them
    POST /v1/completions          OpenAI's completions: stream, n, stop, seed, max_tokens, temperature, top_p, top_k,
                                  logprobs (exact, of the prompt too) and echo
    ...  /playground/...          what the page needs beyond these (`chainrule_app.serve.playground`)
"""

from typing import TYPE_CHECKING

from chainrule.lazy import attach

if TYPE_CHECKING:
    from chainrule_app.serve.guard import Limits
    from chainrule_app.serve.server import create_app

__all__ = ["Limits", "create_app"]

__getattr__, __dir__ = attach(__name__)
