"""The scripted server's socket side: one session per connection, every event through the script's faults."""

from __future__ import annotations

import asyncio
import contextlib
import time
from http import HTTPStatus
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from omni_duplex_bench.testing.script import Fault, Script
from omni_duplex_bench.testing.session import ScriptedSession


class ScriptedServer:
    """Listens on a free loopback port while it is entered; ``url`` is the address to give to a client."""

    def __init__(self, script: Script | None = None, *, record: bool = True) -> None:
        self.script = script or Script()
        self.received: list[dict[str, Any]] = []
        """Every client event of every session in order, audio replaced by its size, when ``record``."""
        self.requests: list[tuple[str, dict[str, str]]] = []
        """Path with query and headers of every handshake, when ``record``."""
        self.sessions = 0
        self.resumed: list[str] = []
        self._record = record
        self._server: Server | None = None
        self._tokens: dict[str, str] = {}

    async def __aenter__(self) -> ScriptedServer:
        self._server = await serve(
            self._serve,
            "127.0.0.1",
            0,
            process_request=self._admit,
            max_size=self.script.max_message_bytes,
            ping_interval=None,
            compression=None,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop listening and end every session."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
            self._server = None

    @property
    def url(self) -> str:
        """``ws://127.0.0.1:PORT/v1/realtime``."""
        if self._server is None:
            raise RuntimeError("the scripted server is not running")
        port = next(iter(self._server.sockets)).getsockname()[1]
        return f"ws://127.0.0.1:{port}/v1/realtime"

    def _admit(self, connection: ServerConnection, request: Request) -> Response | None:
        if self._record:
            self.requests.append((request.path, dict(request.headers.raw_items())))
        if not urlsplit(request.path).path.endswith("/realtime"):
            return connection.respond(HTTPStatus.NOT_FOUND, "only /v1/realtime is served\n")
        token = parse_qs(urlsplit(request.path).query).get("resume_token", [None])[0]
        if token is not None and token not in self._tokens:
            return connection.respond(HTTPStatus.FORBIDDEN, "unknown resume token\n")
        return None

    async def _serve(self, connection: ServerConnection) -> None:
        request = connection.request
        query = parse_qs(urlsplit(request.path if request is not None else "").query)
        self.sessions += 1
        wire = _Wire(connection, self.script.faults)
        token = query.get("resume_token", [None])[0]
        session_id = query.get("session_id", [f"sess_{self.sessions}"])[0]
        if token is not None:
            self.resumed.append(session_id)
        resume = f"token-{self.sessions}"
        self._tokens[resume] = session_id
        session = ScriptedSession(self.script, wire.send, session_id, resume)
        sender = asyncio.create_task(self._expire(session, connection))
        try:
            if query.get("autostart", ["1"])[0] != "0":
                await session.begin()
            async for message in connection:
                try:
                    event = msgspec.json.decode(message)
                except msgspec.DecodeError:
                    await session.refuse(None, "invalid_json", "the message is not JSON")
                    continue
                if self._record:
                    self.received.append(_without_audio(event))
                if not await session.handle(event):
                    break
        except ConnectionClosed:
            pass
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
            await session.close()

    async def _expire(self, session: ScriptedSession, connection: ServerConnection) -> None:
        if self.script.session_limit_s is None:
            return
        await asyncio.sleep(self.script.session_limit_s)
        with contextlib.suppress(ConnectionClosed):
            await session.expire()
            await connection.close()


class _Wire:
    """Sends events and breaks the ones the script names."""

    def __init__(self, connection: ServerConnection, faults: tuple[Fault, ...]) -> None:
        self._connection = connection
        self._faults = faults
        self._seen: dict[str, int] = {}
        self._held: bytes | None = None
        self._count = 0

    async def send(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        self._count += 1
        event.setdefault("event_id", f"evt_s{self._count}")
        nth = self._seen.get(kind, 0)
        self._seen[kind] = nth + 1
        fault = next((f for f in self._faults if f.event_type == kind and f.nth == nth), None)
        message = msgspec.json.encode(event)
        if fault is None:
            await self._put(message)
            return
        match fault.kind:
            case "late":
                await asyncio.sleep(fault.delay_s)
                await self._put(message)
            case "stall":
                time.sleep(fault.delay_s)  # noqa: ASYNC251 - the fault is a loop that does not turn
                await self._put(message)
            case "duplicate":
                await self._put(message)
                await self._put(message)
            case "reorder":
                self._held = message
            case "malformed":
                await self._put(
                    msgspec.json.encode({"type": kind, "delta": 7, "response": "?", "event_id": event["event_id"]})
                )
            case "junk":
                await self._put(b"{not json")
            case "close":
                await self._connection.close(1011, "scripted close")
            case "drop":
                pass

    async def _put(self, message: bytes) -> None:
        held, self._held = self._held, None
        await self._connection.send(message, text=True)
        if held is not None:
            await self._connection.send(held, text=True)


def _without_audio(event: Any) -> dict[str, Any]:
    if not isinstance(event, dict):
        return {"type": "", "value": event}
    audio = event.get("audio")
    return event | {"audio": f"<{len(audio)} base64 characters>"} if isinstance(audio, str) else event
