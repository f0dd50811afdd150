"""Errors as answers, in the shape of OpenAI's API, on all routes."""

from collections.abc import Callable
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from chainrule._printing import one_line
from chainrule.serve._limits import Busy

_KINDS = {401: "authentication_error", 429: "rate_limit_error"}
_MOST = 500  # characters of a message, which may quote data of any size


class ClientGone(Exception):  # noqa: N818  an event, not a mistake
    """The client has closed its connection: nobody reads an answer."""


def error_body(status: int, message: str) -> dict[str, Any]:
    """Return the content of an answer that is an error."""
    kind = _KINDS.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": one_line(message)[:_MOST], "type": kind, "param": None, "code": None}}


def error_response(status: int, message: str) -> JSONResponse:
    """Return an answer that is an error; with status 429 it says when to try again."""
    headers = {"Retry-After": "1"} if status == 429 else {"WWW-Authenticate": "Bearer"} if status == 401 else None
    return JSONResponse(error_body(status, message), status, headers)


def status_of(error: Exception) -> tuple[int, str]:
    """Return the status and the message of the answer to an error."""
    match error:
        case Busy():
            return 429, str(error)
        case TimeoutError():
            return 504, "the limit of time has passed: ask for less"
        case HTTPException():
            return error.status_code, str(error.detail)
        case RequestValidationError() | ValidationError():
            return 400, _first_fault(error)
        case ValueError():
            return 400, str(error)
    return 500, "the server made a mistake; its log says which"


def answer_errors(app: FastAPI) -> None:
    """Let all errors be answered in one shape."""

    def answer(_: Request, error: Exception) -> JSONResponse:
        return error_response(*status_of(error))

    def nothing(_: Request, __: Exception) -> JSONResponse:
        return JSONResponse({}, 499)  # nobody reads it

    handlers: dict[type[Exception], Callable[[Request, Exception], JSONResponse]] = {
        **dict.fromkeys((Exception, ValueError, RequestValidationError, HTTPException, Busy, TimeoutError), answer),
        ClientGone: nothing,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _first_fault(error: RequestValidationError | ValidationError) -> str:
    fault = error.errors()[0]
    if fault["type"] == "json_invalid":
        return "body: expected JSON in UTF-8"
    field = ".".join(str(part) for part in fault["loc"] if part != "body")
    return f"{field}: {fault['msg']}" if field else fault["msg"]
