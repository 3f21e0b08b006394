"""The scripted server as people who write clients meet it: with any client, and with nonsense."""

from __future__ import annotations

import json
from typing import Any

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from omni_duplex_bench.testing import Fault, Script, ScriptedServer, speechlike


async def until(socket: Any, kind: str) -> dict[str, Any]:
    while True:
        event: dict[str, Any] = json.loads(await socket.recv())
        if event["type"] == kind:
            return event


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("not json", "invalid_json"),
        ("[]", "invalid_event"),
        ('{"type": 5}', "invalid_event"),
        ('{"type": "dance", "event_id": "e1"}', "unknown_event"),
        ('{"type": "input_audio_buffer.append", "audio": "!", "event_id": "e1"}', "invalid_audio"),
        ('{"type": "input_audio_buffer.commit", "event_id": "e1"}', "input_audio_buffer_commit_empty"),
        ('{"type": "response.cancel", "event_id": "e1"}', "response_cancel_not_active"),
    ],
)
async def test_nonsense_is_refused_and_the_session_lives(message: str, code: str) -> None:
    async with ScriptedServer() as server, connect(server.url) as socket:
        await until(socket, "session.created")
        await socket.send(message)
        error = (await until(socket, "error"))["error"]
        assert error["code"] == code
        assert error["event_id"] == ("e1" if "e1" in message else None)
        await socket.send('{"type": "response.create"}')
        assert (await until(socket, "response.done"))["response"]["status"] == "completed"


async def test_other_paths_are_not_served() -> None:
    async with ScriptedServer() as server:
        with pytest.raises(InvalidStatus):
            await connect(server.url.replace("realtime", "other"))


@pytest.mark.parametrize(("kind", "expected"), [("duplicate", 2), ("drop", 0), ("reorder", 1)])
async def test_faults_do_what_they_say(kind: str, expected: int) -> None:
    fault = Fault("response.output_audio.done", kind)  # type: ignore[arg-type]
    async with ScriptedServer(Script(faults=(fault,))) as server, connect(server.url) as socket:
        await until(socket, "session.created")
        await socket.send('{"type": "response.create"}')
        kinds: list[str] = []
        while kinds.count("response.done") == 0 or (kind == "reorder" and kinds[-1] == "response.done"):
            kinds.append(json.loads(await socket.recv())["type"])
        assert kinds.count("response.output_audio.done") == expected
        assert kind != "reorder" or kinds.index("response.done") < kinds.index("response.output_audio.done")


async def test_output_and_items_can_be_cleared_and_truncated() -> None:
    async with ScriptedServer() as server, connect(server.url) as socket:
        for sent, answer in (
            ('{"type": "input_audio_buffer.clear"}', "input_audio_buffer.cleared"),
            ('{"type": "output_audio_buffer.clear"}', "output_audio_buffer.cleared"),
            (
                '{"type": "conversation.item.truncate", "item_id": "i", "audio_end_ms": 5}',
                "conversation.item.truncated",
            ),
            ('{"type": "session.close"}', "session.closed"),
        ):
            await socket.send(sent)
            await until(socket, answer)


async def test_an_address_needs_a_running_server_and_closing_twice_is_fine() -> None:
    server = ScriptedServer()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.url
    async with server:
        assert server.url.startswith("ws://127.0.0.1:")
    await server.close()


def test_the_sound_is_loud_and_repeatable() -> None:
    sound = speechlike(0.5, 16_000)
    assert len(sound) == 8000
    assert (sound == speechlike(0.5, 16_000)).all()
    assert abs(sound).max() > 3000
