"""Interrupt an answer: stop it, drop what is queued, and tell the server how much was heard."""

from __future__ import annotations

import asyncio
import time

from omni_duplex_bench import RealtimeClient
from omni_duplex_bench.commands import CancelResponse, CreateResponse, Truncate
from omni_duplex_bench.testing import Script, ScriptedServer


async def main() -> None:
    """Ask for a long answer and interrupt it once a little of it was heard."""
    async with ScriptedServer(Script(reply_s=20.0, speed=20)) as server, RealtimeClient(server.url) as client:
        await client.configure()
        await client.send(CreateResponse())
        await client.wait_until(lambda: client.core.output_bytes > 48_000, timeout_s=10)
        await client.send(CancelResponse())
        await client.wait_until(lambda: not client.core.ledger.active, timeout_s=10)
        (record,) = client.core.ledger
        (heard,) = client.core.playback.progress(time.monotonic())
        await client.send(Truncate(item_id=heard.item_id or "", audio_end_ms=heard.played_ms, content_index=0))
        print(f"{record.status}: {heard.played_ms} ms of {record.audio_s:.1f} s received were heard")


if __name__ == "__main__":
    asyncio.run(main())
