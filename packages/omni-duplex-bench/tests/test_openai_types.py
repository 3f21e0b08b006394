"""The official client's types accept every event that the scripted server sends in the GA spelling."""

from __future__ import annotations

import pytest

from omni_duplex_bench import PacingConfig, RealtimeClient
from omni_duplex_bench import commands as cmd
from omni_duplex_bench.events import ServerEvent
from omni_duplex_bench.testing import Script, ScriptedServer, speechlike


async def test_server_events_parse_as_the_official_types() -> None:
    realtime = pytest.importorskip("openai.types.realtime", reason="the official types need openai")
    pydantic = pytest.importorskip("pydantic", reason="the official types need pydantic")
    adapter = pydantic.TypeAdapter(realtime.RealtimeServerEvent)
    seen: list[ServerEvent] = []
    script = Script(turns="server", extended=False, silence_s=0.2, reply_s=0.3)
    async with ScriptedServer(script) as server, RealtimeClient(server.url) as client:
        client.observe(seen.append)
        await client.configure(instructions="x")
        async for _ in client.stream(speechlike(0.4, 16_000).tobytes(), pacing=PacingConfig(chunk_ms=100)):
            pass
        await client.send(cmd.CancelResponse())
        await client.wait_until(lambda: bool(client.errors), timeout_s=10)
    kinds = {event.type for event in seen}
    assert {"session.created", "session.updated", "response.created", "response.done", "error"} <= kinds
    for event in seen:
        parsed = adapter.validate_python(event.raw)
        assert parsed.type == event.type, f"{event.type} was taken for {parsed.type}"
