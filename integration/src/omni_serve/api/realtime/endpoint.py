"""The WebSocket driver: handshake, two loops, and what happens when the socket goes."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import logging
from collections.abc import Mapping

from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from omni_serve.api.access import RefusedError, check_socket
from omni_serve.api.realtime.dialect import BETA_SUBPROTOCOL, dialect_of
from omni_serve.api.realtime.live import LiveSession
from omni_serve.api.settings import ApiSettings
from omni_serve.contract import Engine
from omni_serve.errors import OverloadedError, ServeError, StageUnavailableError

log = logging.getLogger("omni_serve.api")

NORMAL, GOING_AWAY, POLICY, INTERNAL, TRY_LATER = 1000, 1001, 1008, 1011, 1013
_PROTOCOLS = ("realtime", BETA_SUBPROTOCOL)


class RealtimeEndpoint:
    """Serves /v1/realtime and remembers the sessions whose clients may come back."""

    def __init__(self, engine: Engine, settings: ApiSettings) -> None:
        self._engine, self._settings = engine, settings
        self._sessions: dict[str, LiveSession] = {}
        self._attached: dict[str, asyncio.Event] = {}
        self._grace: dict[str, asyncio.Task[None]] = {}

    async def close(self) -> None:
        """End every session, telling its client that the server goes away."""
        for live in list(self._sessions.values()):
            await live.close("the server is shutting down")
        for task in self._grace.values():
            task.cancel()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one connection from handshake to close."""
        try:
            check_socket(socket, self._settings)
        except RefusedError as refusal:
            await socket.close(POLICY, reason=refusal.message[:120])
            return
        query = socket.query_params
        offered = [part.strip() for part in socket.headers.get("sec-websocket-protocol", "").split(",")]
        await socket.accept(subprotocol=next((p for p in _PROTOCOLS if p in offered), None))
        live = self._resumed(query) if "resume_token" in query else self._fresh(socket, query, offered)
        if live is None:
            await _refuse(socket, "session_not_found", "no session waits for that session_id and resume_token", POLICY)
            return
        if not live.started and query.get("autostart", "1") != "0":
            try:
                await live.start()
            except ServeError as error:
                later = isinstance(error, OverloadedError | StageUnavailableError)
                await _refuse(socket, "session_refused", str(error), TRY_LATER if later else POLICY)
                return
        await self._attend(socket, live)

    def _fresh(self, socket: WebSocket, query: Mapping[str, str], offered: list[str]) -> LiveSession:
        dialect = dialect_of(socket.headers.get("openai-beta"), offered, query.get("native_duplex"))
        voices = [model.id for model in self._engine.models() if model.kind == "voice"]
        model = query.get("model") or (voices[0] if voices else "")
        return LiveSession(self._engine, self._settings, dialect, model, resumable="duplex" in query)

    def _resumed(self, query: Mapping[str, str]) -> LiveSession | None:
        live = self._sessions.get(query.get("session_id", ""))
        token = query.get("resume_token", "")
        if live is None or live.token is None or not hmac.compare_digest(live.token.encode(), token.encode()):
            return None
        grace = self._grace.pop(live.id, None)
        if grace is not None:
            grace.cancel()
        before = self._attached.get(live.id)
        if before is not None:
            before.set()  # the socket it had is taken over
        last = query.get("last_event_id")
        if last is not None:
            live.outbox.rewind(last)
        return live

    async def _attend(self, socket: WebSocket, live: LiveSession) -> None:
        """Run both loops until the client, the session or the network ends."""
        self._sessions[live.id] = live
        replaced = self._attached[live.id] = asyncio.Event()
        receiver = asyncio.create_task(_receive(socket, live), name=f"receive {live.id}")
        sender = asyncio.create_task(_send(socket, live), name=f"send {live.id}")
        taken = asyncio.create_task(replaced.wait(), name=f"taken {live.id}")
        loops = {receiver, sender, taken}
        try:
            done, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
            if live.ended.is_set() and not sender.done():
                await asyncio.wait({sender}, timeout=5.0)
        finally:
            for task in loops:
                task.cancel()
            await asyncio.gather(*loops, return_exceptions=True)
        if self._attached[live.id] is not replaced:
            await _closed(socket, POLICY, "the session was resumed by another connection")
            return
        del self._attached[live.id]
        clean = receiver in done and not receiver.cancelled() and receiver.exception() is None and receiver.result()
        if live.ended.is_set() or clean or live.token is None:
            await self._end(live)
            await _closed(socket, NORMAL, live.close_reason or "")
        else:
            self._grace[live.id] = asyncio.create_task(self._expire(live), name=f"grace {live.id}")

    async def _expire(self, live: LiveSession) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.resume_grace_s):
                await live.ended.wait()
        self._grace.pop(live.id, None)
        await self._end(live)

    async def _end(self, live: LiveSession) -> None:
        self._sessions.pop(live.id, None)
        await live.close()


async def _receive(socket: WebSocket, live: LiveSession) -> bool:
    """Feed the client's messages; True when it closed in order."""
    while not live.ended.is_set():
        try:
            message = await socket.receive()
        except WebSocketDisconnect as gone:
            return gone.code in (NORMAL, GOING_AWAY)
        if message["type"] == "websocket.disconnect":
            return message.get("code") in (NORMAL, GOING_AWAY)
        text = message.get("text")
        if text is None:
            live.refuse_binary()
        else:
            await live.handle(text)
    return True


async def _send(socket: WebSocket, live: LiveSession) -> None:
    """Write queued events until the session ends; an event counts as sent when the socket took it."""
    while (event := await live.outbox.peek()) is not None:
        await socket.send_text(json.dumps(event, separators=(",", ":"), allow_nan=False))
        live.outbox.sent()


async def _refuse(socket: WebSocket, code: str, message: str, close_code: int) -> None:
    error = {"type": "invalid_request_error", "code": code, "message": message, "param": None, "event_id": None}
    event = {"event_id": f"event_{code}", "type": "error", "error": error}
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):
        await socket.send_text(json.dumps(event))
    await _closed(socket, close_code, message)


async def _closed(socket: WebSocket, code: int, reason: str) -> None:
    if socket.application_state is WebSocketState.CONNECTED and socket.client_state is WebSocketState.CONNECTED:
        # A socket that died in between has nothing left to be told.
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await socket.close(code, reason=reason.encode()[:120].decode(errors="ignore"))
