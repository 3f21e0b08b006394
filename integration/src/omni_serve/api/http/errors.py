"""Faults as HTTP answers in OpenAI's error shape."""

from __future__ import annotations

import math

from starlette.responses import JSONResponse

from omni_serve.api.access import RefusedError
from omni_serve.api.realtime.fields import WireError
from omni_serve.errors import (
    DeadlineError,
    InvalidRequestError,
    OverloadedError,
    ServeError,
    StageUnavailableError,
    UnsupportedError,
)


def answer(status: int, message: str, *, kind: str, param: str | None = None, code: str | None = None) -> JSONResponse:
    """An error body with its status."""
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": code}}, status)


def answer_for(error: Exception) -> JSONResponse:
    """The one place where a fault's type becomes a status. Anything not in the tree is the caller's to raise."""
    text = str(error)
    match error:
        case RefusedError():
            return answer(error.status, error.message, kind="authentication_error")
        case WireError():
            return answer(400, text, kind="invalid_request_error", param=error.param, code=error.code)
        case InvalidRequestError():
            return answer(400, text, kind="invalid_request_error", param=error.field, code=error.code)
        case UnsupportedError():
            return answer(501, text, kind="not_supported_error", param=error.field, code="not_supported")
        case OverloadedError():
            refused = answer(429, text, kind="rate_limit_error", code="overloaded")
            refused.headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
            return refused
        case StageUnavailableError():
            return answer(503, text, kind="server_error", code="stage_unavailable")
        case DeadlineError():
            return answer(504, text, kind="server_error", code="deadline")
        case ServeError():
            return answer(500, text, kind="server_error")
        case _:
            raise error
