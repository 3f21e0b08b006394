"""The application: routes to handlers, faults to answers, and the server that runs it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from importlib import resources

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from omni_serve.api.access import RefusedError, check_request
from omni_serve.api.http import chat, control, media, models, speech
from omni_serve.api.http.body import ClientGoneError
from omni_serve.api.http.errors import answer, answer_for
from omni_serve.api.realtime.endpoint import RealtimeEndpoint
from omni_serve.api.realtime.fields import WireError
from omni_serve.api.settings import ApiSettings
from omni_serve.contract import Engine
from omni_serve.errors import ServeError

log = logging.getLogger("omni_serve.api")

Handler = Callable[[Request, Engine, ApiSettings], Awaitable[Response]]


def create_app(engine: Engine, settings: ApiSettings) -> ASGIApp:
    """The ASGI application of a running engine; its life (start, drain, close) stays the caller's."""
    endpoint = RealtimeEndpoint(engine, settings)
    page = resources.files("omni_serve.api").joinpath("page/index.html").read_text(encoding="utf-8")

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        await endpoint.close()

    routes: list[BaseRoute] = []

    def add(path: str, method: str, handler: Handler) -> None:
        async def guarded(request: Request) -> Response:
            try:
                check_request(request, settings)
                return await handler(request, engine, settings)
            except (ServeError, WireError, RefusedError) as error:
                return answer_for(error)
            except ClientGoneError:
                return Response(status_code=499)

        routes.append(Route(path, guarded, methods=[method]))

    async def the_page(request: Request, engine: Engine, settings: ApiSettings) -> Response:
        return HTMLResponse(page, headers={"Cache-Control": "no-cache", "Content-Security-Policy": _PAGE_POLICY})

    async def the_models(request: Request, engine: Engine, settings: ApiSettings) -> Response:
        return JSONResponse(models.listing(engine))

    async def the_health(request: Request, engine: Engine, settings: ApiSettings) -> Response:
        return control.health(engine)

    async def the_metrics(request: Request, engine: Engine, settings: ApiSettings) -> Response:
        return control.metrics(engine)

    async def realtime(socket: WebSocket) -> None:
        await endpoint.serve(socket)

    add("/", "GET", the_page)
    add("/health", "GET", the_health)
    add("/metrics", "GET", the_metrics)
    add("/v1/models", "GET", the_models)
    add("/v1/chat/completions", "POST", chat.chat)
    add("/v1/audio/speech", "POST", speech.speech)
    add("/v1/audio/transcriptions", "POST", speech.transcriptions)
    add("/v1/audio/generate", "POST", media.audio)
    add("/v1/images/generations", "POST", media.images)
    add("/v1/videos", "POST", media.videos)
    add("/v1/omni/sleep", "POST", control.sleep)
    add("/v1/omni/wakeup", "POST", control.wakeup)
    routes.append(WebSocketRoute("/v1/realtime", realtime))
    return _Last(Starlette(routes=routes, lifespan=lifespan))


_PAGE_POLICY = "default-src 'self' 'unsafe-inline' blob: data:; connect-src 'self' ws: wss:"


class _Last:
    """The outermost boundary: a fault nobody expected is logged with its traceback and answered without it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def watched(message: dict[str, object]) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)  # type: ignore[arg-type]
        except Exception:  # one request's fault must not take the server with it; it is logged whole
            log.exception("unexpected fault at %s", scope.get("path"))
            if scope["type"] == "http" and not begun:
                await answer(500, "internal error; the server's log has it", kind="server_error")(scope, receive, send)
