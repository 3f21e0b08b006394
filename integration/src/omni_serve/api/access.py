"""Who may connect: origins of web pages, and the API key."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection, Request
from starlette.websockets import WebSocket

from omni_serve.api.settings import ApiSettings

KEY_SUBPROTOCOL = "openai-insecure-api-key."
"""How a browser, which cannot set headers on a WebSocket, sends the key."""

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

OPEN_PATHS = frozenset({"/", "/health", "/favicon.ico"})


class RefusedError(Exception):
    """A connection that is turned away, with an HTTP status and a sentence."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


def check_socket(socket: WebSocket, settings: ApiSettings) -> None:
    """Raise RefusedError for a foreign page's WebSocket, or one without the key."""
    _check_origin(socket, settings)
    offered = socket.headers.get("sec-websocket-protocol", "").split(",")
    sent = [part.strip().removeprefix(KEY_SUBPROTOCOL) for part in offered if part.strip().startswith(KEY_SUBPROTOCOL)]
    _check_key(socket.headers, sent, settings)


def check_request(request: Request, settings: ApiSettings) -> None:
    """Raise RefusedError for a foreign page's request, or one without the key."""
    if request.method not in ("GET", "HEAD", "OPTIONS"):
        _check_origin(request, settings)
    if request.url.path not in OPEN_PATHS:
        _check_key(request.headers, [], settings)


def _check_origin(connection: HTTPConnection, settings: ApiSettings) -> None:
    """A browser names the page's origin; programs send none. Without this any web page could talk to the server.

    A server on loopback also holds the name it is called by to loopback, so that a page whose own name was made to
    point here (DNS rebinding) is foreign as well.
    """
    origin = connection.headers.get("origin")
    if origin is None or origin in settings.allow_origins:
        return
    page, host = urlsplit(origin), connection.headers.get("host", "").lower()
    rebound = settings.host in LOOPBACK and (page.hostname or "") not in LOOPBACK
    if page.netloc.lower() != host or rebound:
        raise RefusedError(
            403, f"origin {origin[:200]} is not allowed; start the server with --allow-origin {origin[:200]}"
        )


def _check_key(headers: Mapping[str, str], sent: list[str], settings: ApiSettings) -> None:
    if settings.api_key is None:
        return
    scheme, _, token = headers.get("authorization", "").partition(" ")
    candidates = [*sent, token] if scheme.lower() == "bearer" else sent
    if not any(hmac.compare_digest(given.strip().encode(), settings.api_key.encode()) for given in candidates):
        raise RefusedError(401, "this server needs its API key: send Authorization: Bearer KEY")
