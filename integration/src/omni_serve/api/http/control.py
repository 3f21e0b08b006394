"""/health, /metrics, and putting stages to sleep."""

from __future__ import annotations

from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from omni_serve.api.http.body import read_json
from omni_serve.api.realtime.fields import Fields, WireError
from omni_serve.api.settings import ApiSettings
from omni_serve.contract import Engine


def health(engine: Engine) -> Response:
    """200 while every needed stage has a live replica, 503 otherwise; the body says which has not."""
    found = engine.health()
    status = "draining" if found.draining else "ok" if found.ready else "unavailable"
    body = {"status": status, "stages": [asdict(stage) for stage in found.stages]}
    return JSONResponse(body, 200 if found.ready else 503)


def metrics(engine: Engine) -> Response:
    """Prometheus exposition text."""
    return Response(engine.metrics_text(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def sleep(request: Request, engine: Engine, settings: ApiSettings) -> Response:
    """Put stages to sleep; none named means all."""
    body = await _optional_json(request, settings)
    stages = _stages(body)
    await engine.sleep(stages, body.integer("level", low=1, high=2) or 1)
    return health(engine)


async def wakeup(request: Request, engine: Engine, settings: ApiSettings) -> Response:
    """Wake stages; none named means all that sleep."""
    await engine.wake(_stages(await _optional_json(request, settings)))
    return health(engine)


async def _optional_json(request: Request, settings: ApiSettings) -> Fields:
    if request.headers.get("content-length", "0") == "0" and "transfer-encoding" not in request.headers:
        return Fields({})
    return await read_json(request, settings)


def _stages(body: Fields) -> list[str]:
    given = body.array("stages") or body.array("stage_ids")
    if any(not isinstance(stage, str | int) or isinstance(stage, bool) for stage in given):
        raise WireError("stages must hold stage names", param="stages")
    return [str(stage) for stage in given]
