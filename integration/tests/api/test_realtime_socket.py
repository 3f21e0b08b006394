"""The realtime endpoint over a real socket: both dialects, what a client may send wrong, and what ends a session."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from omni_serve.api.settings import ApiSettings
from omni_serve.contract import SessionFault

BETA = {"OpenAI-Beta": "realtime=v1"}


def b64(samples: int) -> str:
    """Silence as base64 PCM16."""
    return base64.b64encode(np.zeros(samples, np.int16).tobytes()).decode()


async def receive(socket: ClientConnection, kind: str) -> dict[str, Any]:
    """The next event of a kind; everything before it is passed over."""
    while True:
        event: dict[str, Any] = json.loads(await socket.recv())
        if event["type"] == kind:
            return event


async def until_done(socket: ClientConnection) -> list[dict[str, Any]]:
    """Every event up to and with response.done."""
    events = []
    while True:
        events.append(json.loads(await socket.recv()))
        if events[-1]["type"] == "response.done":
            return events


async def send(socket: ClientConnection, kind: str, **fields: Any) -> None:
    await socket.send(json.dumps({"type": kind, **fields}))


@pytest.mark.parametrize("beta", [False, True])
async def test_a_turn_in_one_dialect_uses_no_name_of_the_other(serving: Any, beta: bool) -> None:
    async with serving() as server, connect(server.ws, additional_headers=BETA if beta else {}) as socket:
        await send(socket, "input_audio_buffer.append", audio=b64(24_000))
        await send(socket, "input_audio_buffer.commit")
        names = [event["type"] for event in await until_done(socket)]
        ga = {"response.output_audio.delta", "response.output_audio_transcript.delta", "conversation.item.added"}
        old = {"response.audio.delta", "response.audio_transcript.delta", "conversation.item.created"}
        assert (old if beta else ga) <= set(names)
        assert not (ga if beta else old) & set(names)
        assert names.count("response.created") == names.count("response.done") == 1


async def test_every_event_is_one_the_official_client_knows(serving: Any) -> None:
    openai = pytest.importorskip("openai.types.realtime", reason="needs the openai client")
    from pydantic import TypeAdapter

    adapter: TypeAdapter[Any] = TypeAdapter(openai.RealtimeServerEvent)
    async with serving() as server, connect(server.ws) as socket:
        first = json.loads(await socket.recv())
        await send(socket, "input_audio_buffer.append", audio=b64(24_000))
        await send(socket, "input_audio_buffer.commit")
        await send(socket, "response.cancel")
        events = [first, *await until_done(socket)]
        ids = [event["event_id"] for event in events]
        assert len(set(ids)) == len(ids)
        for event in events:
            found = adapter.validate_python(event)
            assert found.type == event["type"]
            lacking = [n for n, f in type(found).model_fields.items() if f.is_required() and n not in event]
            assert not lacking, f"{event['type']} lacks {lacking}"


async def test_the_official_client_holds_a_conversation(serving: Any) -> None:
    openai = pytest.importorskip("openai", reason="needs the openai client")
    async with serving() as server:
        client = openai.AsyncOpenAI(api_key="none", base_url=f"{server.http}/v1")
        async with client, client.realtime.connect(model="echo-voice") as talk:
            await talk.session.update(session={"type": "realtime", "instructions": "Be brief."})
            await talk.input_audio_buffer.append(audio=b64(2400))
            await talk.input_audio_buffer.commit()
            text, samples = "", 0
            async for event in talk:
                if event.type == "response.output_audio_transcript.delta":
                    text += event.delta
                elif event.type == "response.output_audio.delta":
                    samples += len(base64.b64decode(event.delta)) // 2
                elif event.type == "response.done":
                    break
            assert (text, samples) == ("Hello there.", 9600)
            assert event.response.status == "completed"
            assert json.loads(event.response.metadata["vllm_omni"])["stage_metrics"]["0"]["vllm_itls_ms"] == [5.0]


async def flood(socket: ClientConnection, size: int) -> None:
    """Send one message of a size and read until the server closes."""
    await send(socket, "input_audio_buffer.append", audio="A" * size)
    while True:
        await socket.recv()


BAD = [
    ("not JSON", "{", "invalid_json"),
    ("an array", "[]", "invalid_json"),
    ("a number that JSON has not", '{"type": "playback.ack", "response_id": "r", "played_ms": NaN}', "invalid_json"),
    ("deep nesting", '{"type": ' + "[" * 100_000, "invalid_json"),
    ("no type", '{"event_id": "mine"}', "missing_required_parameter"),
    ("unknown type", '{"type": "party.start", "event_id": "mine"}', "unknown_event"),
    ("no audio", '{"type": "input_audio_buffer.append", "event_id": "mine"}', "missing_required_parameter"),
    ("wrong base64", '{"type": "input_audio_buffer.append", "audio": "*", "event_id": "mine"}', "invalid_base64"),
    ("odd bytes", '{"type": "input_audio_buffer.append", "audio": "AAAA", "event_id": "mine"}', "odd_audio"),
    (
        "a rate of nothing",
        '{"type": "input_audio_buffer.append", "audio": "", "sample_rate_hz": 7, "event_id": "mine"}',
        "invalid_value",
    ),
    (
        "a rate that is text",
        '{"type": "input_audio_buffer.append", "audio": "", "sample_rate_hz": "16k", "event_id": "mine"}',
        "invalid_value",
    ),
    (
        "commit of nothing",
        '{"type": "input_audio_buffer.commit", "event_id": "mine"}',
        "input_audio_buffer_commit_empty",
    ),
    ("cancel of nothing", '{"type": "response.cancel", "event_id": "mine"}', "response_cancel_not_active"),
    ("session is text", '{"type": "session.update", "session": "x", "event_id": "mine"}', "invalid_value"),
    (
        "a format nobody has",
        '{"type": "session.update", "session": {"audio": {"input": {"format": {"type": "audio/x"}}}}}',
        "invalid_value",
    ),
    ("tools", '{"type": "session.update", "session": {"tools": [{}]}, "event_id": "mine"}', "invalid_value"),
    (
        "truncate of nothing",
        '{"type": "conversation.item.truncate", "item_id": "i", "audio_end_ms": 1}',
        "item_not_found",
    ),
    ("surrogates", '{"type": "\\ud800", "event_id": "mine"}', "unknown_event"),
]


@pytest.mark.parametrize(("text", "code"), [pytest.param(text, code, id=name) for name, text, code in BAD])
async def test_bad_input_is_a_typed_error_and_the_session_goes_on(serving: Any, text: str, code: str) -> None:
    async with serving() as server, connect(server.ws) as socket:
        await socket.send(text)
        error = (await receive(socket, "error"))["error"]
        assert error["code"] == code
        assert error["message"]
        if '"mine"' in text:
            assert error["event_id"] == "mine"
        await send(socket, "input_audio_buffer.append", audio=b64(2400))
        await send(socket, "input_audio_buffer.commit")
        assert (await until_done(socket))[-1]["response"]["status"] == "completed"


async def test_a_binary_message_is_an_error_and_the_session_goes_on(serving: Any) -> None:
    async with serving() as server, connect(server.ws) as socket:
        await socket.send(b"\x00\x01")
        assert "binary" in (await receive(socket, "error"))["error"]["message"]
        await send(socket, "input_audio_buffer.clear")
        await receive(socket, "input_audio_buffer.cleared")


async def test_a_message_of_twenty_mebibytes_closes_that_socket_only(serving: Any) -> None:
    async with serving() as server:
        async with connect(server.ws) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                await flood(socket, 20 << 20)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1009
        async with connect(server.ws) as socket:
            await receive(socket, "session.created")
        await server.engine.sessions[0].closed.wait()


async def test_a_message_over_one_mebibyte_arrives_both_ways(serving: Any) -> None:
    async with serving() as server, connect(server.ws, max_size=None) as socket:
        samples = (1 << 20) // 2 + 1
        await send(socket, "input_audio_buffer.append", audio=b64(samples))
        await send(socket, "session.update", session={"type": "realtime", "instructions": "x" * ((1 << 20) + 1)})
        updated = await receive(socket, "session.updated")
        assert len(updated["session"]["instructions"]) == (1 << 20) + 1
        await send(socket, "input_audio_buffer.commit")
        heard = (await receive(socket, "conversation.item.input_audio_transcription.completed"))["transcript"]
        assert abs(int(heard.split()[0]) - samples * 16 / 24) <= 8


async def test_sessions_past_the_limit_are_told_and_others_live(serving: Any) -> None:
    async with serving() as server, connect(server.ws) as one, connect(server.ws) as two:
        await receive(one, "session.created")
        await receive(two, "session.created")
        async with connect(server.ws) as three:
            error = (await receive(three, "error"))["error"]
            assert error["code"] == "session_refused"
            assert "2 sessions" in error["message"]
            with pytest.raises(ConnectionClosed) as closed:
                await three.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1013
        await send(one, "input_audio_buffer.clear")
        await receive(one, "input_audio_buffer.cleared")


async def test_a_client_that_vanishes_frees_its_session(serving: Any) -> None:
    async with serving() as server:
        socket = await connect(server.ws)
        await receive(socket, "session.created")
        await send(socket, "input_audio_buffer.append", audio=b64(2400))
        socket.transport.abort()
        await server.engine.opened.wait()
        await asyncio.wait_for(server.engine.sessions[0].closed.wait(), 30)


async def test_create_while_active_is_tied_to_the_clients_event(serving: Any) -> None:
    async with serving() as server, connect(server.ws) as socket:
        server.engine.release.clear()
        await send(socket, "response.create")
        await receive(socket, "response.created")
        await send(socket, "response.create", event_id="second")
        error = (await receive(socket, "error"))["error"]
        assert (error["code"], error["event_id"]) == ("conversation_already_has_active_response", "second")
        server.engine.release.set()
        assert (await until_done(socket))[-1]["response"]["status"] == "completed"


async def test_cancel_then_done_is_one_terminal(serving: Any) -> None:
    async with serving() as server, connect(server.ws) as socket:
        server.engine.release.clear()
        await send(socket, "response.create")
        await receive(socket, "response.output_audio.delta")
        await send(socket, "response.cancel")
        done = (await until_done(socket))[-1]["response"]
        assert (done["status"], done["status_details"]["reason"]) == ("cancelled", "client_cancelled")
        await send(socket, "input_audio_buffer.clear")
        assert json.loads(await socket.recv())["type"] == "input_audio_buffer.cleared"


async def test_a_dropped_session_is_resumed_with_what_it_missed(serving: Any) -> None:
    async with serving() as server:
        socket = await connect(server.ws + "?duplex=1")
        session = (await receive(socket, "session.created"))["session"]
        server.engine.release.clear()
        await send(socket, "response.create")
        last = await receive(socket, "response.output_audio.delta")
        socket.transport.abort()
        server.engine.release.set()
        query = f"?session_id={session['id']}&resume_token={session['resume_token']}"
        async with connect(f"{server.ws}{query}&last_event_id={last['event_id']}") as again:
            assert (await until_done(again))[-1]["response"]["status"] == "completed"
            await send(again, "session.close")
            assert (await receive(again, "session.closed"))["reason"] == "client_closed"
        assert server.engine.sessions[0].closed.is_set()
        async with connect(server.ws + query) as late:
            assert (await receive(late, "error"))["error"]["code"] == "session_not_found"


async def test_a_wrong_token_gets_nothing(serving: Any) -> None:
    async with serving() as server, connect(server.ws + "?duplex=1") as socket:
        session = (await receive(socket, "session.created"))["session"]
        async with connect(f"{server.ws}?session_id={session['id']}&resume_token=guess") as thief:
            assert (await receive(thief, "error"))["error"]["code"] == "session_not_found"
        await send(socket, "input_audio_buffer.clear")
        await receive(socket, "input_audio_buffer.cleared")


async def test_autostart_0_waits_for_the_settings(serving: Any) -> None:
    async with serving() as server, connect(server.ws + "?autostart=0") as socket:
        await send(socket, "input_audio_buffer.append", audio=b64(240))
        assert (await receive(socket, "error"))["error"]["code"] == "session_not_started"
        assert not server.engine.sessions
        await send(socket, "session.update", session={"type": "realtime", "instructions": "Hi."})
        await receive(socket, "session.created")
        await receive(socket, "session.updated")
        assert server.engine.sessions[0].options.instructions == "Hi."


async def test_foreign_pages_and_missing_keys_are_turned_away(serving: Any) -> None:
    key = "sk-a-secret-of-the-test"
    async with serving(ApiSettings(api_key=key, allow_origins=("https://friend.example",))) as server:
        auth = {"Authorization": f"Bearer {key}"}
        for headers in ({}, {"Authorization": "Bearer wrong"}, auth | {"Origin": "https://evil.example"}):
            with pytest.raises(InvalidStatus) as refused:
                await connect(server.ws, additional_headers=headers)
            assert refused.value.response.status_code == 403
        for headers in (auth, auth | {"Origin": "https://friend.example"}, auth | {"Origin": server.http}):
            async with connect(server.ws, additional_headers=headers) as socket:
                await receive(socket, "session.created")
        assert key not in repr(ApiSettings(api_key=key))


async def test_idle_and_long_sessions_expire_with_a_reason(serving: Any) -> None:
    async with serving(ApiSettings(idle_limit_s=0.05)) as server, connect(server.ws) as socket:
        assert "nothing was received" in (await receive(socket, "session.expired"))["reason"]
    async with serving(ApiSettings(session_limit_s=0.05)) as server, connect(server.ws) as socket:
        assert "at most" in (await receive(socket, "session.expired"))["reason"]
        with pytest.raises(ConnectionClosed) as closed:
            await socket.recv()
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1000


async def test_a_fatal_fault_of_a_stage_ends_the_session_with_its_reason(serving: Any) -> None:
    async with serving() as server, connect(server.ws) as socket:
        await receive(socket, "session.created")
        server.engine.sessions[0].emit(SessionFault("stage_unavailable", "stage listen died", fatal=True))
        assert (await receive(socket, "error"))["error"]["message"] == "stage listen died"
        assert (await receive(socket, "session.closed"))["reason"] == "a stage failed"


async def test_rates_are_honoured_per_append(serving: Any) -> None:
    async with serving() as server, connect(server.ws) as socket:
        for _ in range(10):
            await send(socket, "input_audio_buffer.append", audio=b64(661), sample_rate_hz=44_100)
        await send(socket, "input_audio_buffer.append", audio=b64(1600), sample_rate_hz=16_000)
        await send(socket, "input_audio_buffer.append", audio="", sample_rate_hz=8_000)
        await send(socket, "input_audio_buffer.commit")
        heard = (await receive(socket, "conversation.item.input_audio_transcription.completed"))["transcript"]
        expected = 6610 * 16_000 / 44_100 + 1600
        assert abs(int(heard.split()[0]) - expected) <= 8


async def test_video_frames_are_accepted_bounded_and_counted(serving: Any) -> None:
    settings = ApiSettings(max_video_bytes=10, max_video_frames_per_append=2)
    async with serving(settings) as server, connect(server.ws) as socket:
        frame = base64.b64encode(b"12345").decode()
        await send(socket, "input_audio_buffer.append", audio=b64(24), video_frames=[frame, {"data": frame}])
        await send(socket, "input_audio_buffer.append", audio=b64(24), video_frames=[frame] * 3)
        assert "the most is 2" in (await receive(socket, "error"))["error"]["message"]
        await send(socket, "input_audio_buffer.append", audio=b64(24), video_frames=[frame])
        assert "10 bytes" in (await receive(socket, "error"))["error"]["message"]


async def test_a_client_that_never_reads_loses_its_session_not_the_server(serving: Any) -> None:
    async with serving(ApiSettings(max_unsent_events=64)) as server:
        socket = await connect(server.ws, max_queue=1)
        await server.engine.opened.wait()
        session = server.engine.sessions[0]
        socket.transport.pause_reading()
        for number in range(200_000):
            session.emit(SessionFault("noise", f"{number} " + "x" * 2000))
            if number % 50 == 0:
                await asyncio.sleep(0)
            if session.closed.is_set():
                break
        assert session.closed.is_set()
        socket.transport.abort()
