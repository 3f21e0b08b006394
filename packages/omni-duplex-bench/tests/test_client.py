"""The client against a real socket: conversations, waits that end, and the reported faults of other clients."""

from __future__ import annotations

import asyncio
import json

import pytest
from websockets.asyncio.server import serve

from omni_duplex_bench import (
    ClientConfig,
    ConnectError,
    DialectMismatchError,
    NoDecisionError,
    PacingConfig,
    RealtimeClient,
    ServerError,
    SessionEndedError,
    UnsupportedByServerError,
)
from omni_duplex_bench import commands as cmd
from omni_duplex_bench import events as ev
from omni_duplex_bench.client import server_error
from omni_duplex_bench.testing import Fault, Script, ScriptedServer, speechlike

FAST = PacingConfig(chunk_ms=100, decision_timeout_s=20)
SPEECH = speechlike(0.5, 16_000).tobytes()


async def converse(script: Script, config: ClientConfig | None = None) -> RealtimeClient:
    async with ScriptedServer(script) as server, RealtimeClient(server.url, config=config) as client:
        await client.configure(instructions="be brief")
        seen = [event async for event in client.stream(SPEECH, pacing=FAST)]
    assert any(isinstance(event, ev.ResponseDone) for event in seen)
    return client


@pytest.mark.parametrize("dialect", ["ga", "beta"])
@pytest.mark.parametrize("turns", ["server", "commit"])
@pytest.mark.parametrize("extended", [True, False])
async def test_a_turn_is_answered_in_either_dialect_and_turn_mode(dialect: str, turns: str, extended: bool) -> None:
    client = await converse(Script(dialect=dialect, turns=turns, extended=extended))  # type: ignore[arg-type]
    (record,) = client.core.ledger
    assert record.status == "completed"
    assert record.text == "All right, here is my answer."
    assert record.audio_s == pytest.approx(0.6)
    assert client.core.dialect == dialect
    assert not client.violations
    assert not client.errors


async def test_odd_deltas_lose_no_byte() -> None:
    client = await converse(Script(odd_bytes=True))
    (record,) = client.core.ledger
    assert record.audio_s == pytest.approx(0.6)
    heard = b"".join(bytes(segment.audio) for segment in client.core.playback.segments)
    assert heard == speechlike(0.6, 24_000).tobytes()


@pytest.mark.parametrize(("told", "met"), [("beta", "ga"), ("ga", "beta")])
async def test_a_client_of_one_dialect_fails_loudly_on_a_server_of_the_other(told: str, met: str) -> None:
    async with ScriptedServer(Script(dialect=met)) as server:  # type: ignore[arg-type]
        config = ClientConfig(dialect=told)  # type: ignore[arg-type]
        async with RealtimeClient(server.url, config=config) as client:
            await client.configure()
            with pytest.raises(DialectMismatchError, match=f"answered with the {met} ones"):
                async for _ in client.stream(SPEECH, pacing=FAST):
                    pass


async def test_a_server_busy_for_longer_than_a_keepalive_keeps_its_session() -> None:
    # websockets' default keepalive gives up after 20 s; a stall of the same loop in a thread of the server shows that
    # none is armed here, without waiting that long.
    client = await converse(Script(faults=(Fault("response.output_audio.delta", "stall", 1, 1.5),)))
    assert [r.status for r in client.core.ledger] == ["completed"]
    assert client._socket is not None
    assert client._socket.ping_interval is None


async def test_messages_over_a_mebibyte_pass_each_way() -> None:
    big = "x" * (1024 * 1024 + 1)
    script = Script(extra_events=({"type": "server.note", "text": big},))
    async with ScriptedServer(script, record=True) as server, RealtimeClient(server.url) as client:
        await client.configure(instructions=big)
        events = [await client.next_event() for _ in range(3)]
        assert any(isinstance(e, ev.UnknownEvent) and e.raw["text"] == big for e in events)
        assert server.received[0]["session"]["instructions"] == big


async def test_a_message_over_the_limit_ends_the_session_with_its_cause() -> None:
    script = Script(extra_events=({"type": "server.note", "text": "x" * 5000},))
    async with ScriptedServer(script) as server:
        async with RealtimeClient(server.url, config=ClientConfig(max_message_bytes=4000)) as client:
            with pytest.raises(SessionEndedError, match="1009"):
                await client.wait_until(lambda: False, timeout_s=20)


async def test_create_while_active_and_cancel_after_done_are_survivable_errors_with_the_clients_event() -> None:
    async with ScriptedServer(Script(reply_s=0.2, think_s=0.2)) as server, RealtimeClient(server.url) as client:
        await client.configure()
        await client.send(cmd.CreateResponse())
        second = await client.send(cmd.CreateResponse())
        await client.wait_until(lambda: len(client.errors) == 1, timeout_s=20)
        await client.wait_until(lambda: [r.status for r in client.core.ledger] == ["completed"], timeout_s=20)
        late = await client.send(cmd.CancelResponse())
        await client.wait_until(lambda: len(client.errors) == 2, timeout_s=20)
        created, cancelled = client.errors
        assert (created.client_event_id, created.command) == (second, "response.create")
        assert (cancelled.client_event_id, cancelled.command) == (late, "response.cancel")
        error = server_error(created)
        assert isinstance(error, RuntimeError)
        assert error.code == "conversation_already_has_active_response"
        await client.send(cmd.CreateResponse())
        await client.wait_until(lambda: [r.status for r in client.core.ledger] == ["completed"] * 2, timeout_s=20)


@pytest.mark.parametrize("style", ["done", "cancelled+done"])
async def test_cancel_then_done_is_one_terminal_and_clears_what_is_queued(style: str) -> None:
    script = Script(reply_s=30.0, speed=0, cancel_style=style, think_s=0, first_audio_s=0)  # type: ignore[arg-type]
    # All 30 s of audio arrive at once, so the cancel comes while most of it is queued; done waits for the last delta.
    script = Script(reply_s=30.0, speed=50, cancel_style=style, think_s=0, first_audio_s=0)  # type: ignore[arg-type]
    async with ScriptedServer(script) as server, RealtimeClient(server.url) as client:
        await client.configure()
        await client.send(cmd.CreateResponse())
        await client.wait_until(lambda: client.core.output_bytes > 100_000, timeout_s=20)
        queued = client.core.playback.end_s
        await client.send(cmd.CancelResponse())
        await client.wait_until(lambda: not client.core.ledger.active, timeout_s=20)
        await client.send(cmd.CreateResponse())
        await client.wait_until(lambda: len(client.core.ledger) == 2, timeout_s=20)
        first = next(iter(client.core.ledger))
        assert first.status == "cancelled"
        assert first.cancel_requested
        assert client.core.playback.end_s < queued
        assert not client.violations


async def test_speech_into_an_answer_interrupts_it_and_the_next_turn_is_answered() -> None:
    script = Script(turns="server", reply_s=6.0, speed=1.5, silence_s=0.3)
    speech = speechlike(0.4, 16_000).tobytes() + bytes(2 * 16_000) + speechlike(0.4, 16_000).tobytes()
    async with ScriptedServer(script) as server, RealtimeClient(server.url) as client:
        await client.configure()
        events = [event async for event in client.stream(speech, pacing=FAST)]
        assert [r.status for r in client.core.ledger] == ["cancelled", "completed"]
        assert sum(isinstance(event, ev.ResponseDone) for event in events) == 2


async def test_playback_is_acknowledged_only_as_far_as_it_was_heard() -> None:
    async with ScriptedServer(Script(turns="server", reply_s=1.0, speed=4, silence_s=0.2)) as server:
        async with RealtimeClient(server.url) as client:
            await client.configure()
            async for _ in client.stream(SPEECH + bytes(32_000), pacing=FAST):
                pass
            acks = [event for event in server.received if event["type"] == "playback.ack"]
    assert acks
    played = [ack["played_ms"] for ack in acks]
    assert played == sorted(set(played))
    assert all(ack["played_ms"] <= 1000 for ack in acks)


async def test_a_superseded_ack_is_harmless() -> None:
    async with ScriptedServer(Script()) as server, RealtimeClient(server.url) as client:
        await client.configure()
        await client.send(cmd.PlaybackAck(response_id="gone", item_id="item_gone", played_ms=10, committed_ms=10))
        async for _ in client.stream(SPEECH, pacing=FAST):
            pass
        assert not client.errors


@pytest.mark.parametrize("kind", ["close", "vanish", "cancel"])
async def test_whoever_waits_learns_at_once_that_the_reader_stopped(kind: str) -> None:
    script = Script(faults=(Fault("input_audio_buffer.committed", "close"),) if kind == "close" else ())
    async with ScriptedServer(script) as server, RealtimeClient(server.url) as client:
        await client.configure()
        waiting = asyncio.create_task(client.wait_until(lambda: False, timeout_s=60))
        await asyncio.sleep(0)
        if kind == "close":
            await client.append(bytes(640), rate_hz=16_000)
            await client.commit()
        elif kind == "vanish":
            await server.close()
        else:
            assert client._reader is not None
            client._reader.cancel()
        with pytest.raises(SessionEndedError) as caught:
            await waiting
        assert "cancelled" in str(caught.value) or caught.value.code is not None
        with pytest.raises(SessionEndedError):
            await client.send(cmd.Heartbeat())


async def test_an_observer_that_fails_reaches_the_waiter_with_its_cause() -> None:
    async with ScriptedServer(Script()) as server, RealtimeClient(server.url) as client:

        def broken(event: ev.ServerEvent) -> None:
            raise ZeroDivisionError("in the observer")

        client.observe(broken)
        with pytest.raises(SessionEndedError, match="in the observer") as caught:
            await client.wait_until(lambda: False, timeout_s=20)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_close_waits_for_a_new_session_closed_and_may_be_called_again() -> None:
    async with ScriptedServer(Script()) as server:
        client = RealtimeClient(server.url)
        await client.connect()
        await client.configure()
        await client.close()
        assert client.core.closes == 1
        await client.close()
        assert client.core.closes == 1
        assert server.received[-1]["type"] == "session.close"


async def test_close_before_connect_and_without_an_answer_does_not_hang() -> None:
    client = RealtimeClient("ws://127.0.0.1:1/v1/realtime")
    await client.close()
    script = Script(faults=(Fault("session.closed", "drop"),))
    async with ScriptedServer(script) as server:
        async with RealtimeClient(server.url, config=ClientConfig(close_timeout_s=0.2)) as client:
            await client.configure()


async def test_a_session_is_resumed_by_its_token() -> None:
    async with ScriptedServer(Script()) as server:
        async with RealtimeClient(server.url) as client:
            await client.configure()
            session_id = client.core.session["id"]
            async with client.resumed() as again:
                await again.configure()
                assert again.core.session["id"] == session_id
        assert server.resumed == [session_id]
        with pytest.raises(ConnectError, match="403"):
            await RealtimeClient(server.url, config=ClientConfig(resume_token="forged")).connect()


async def test_resume_and_a_reference_voice_need_a_server_that_announces_them() -> None:
    async with ScriptedServer(Script(extended=False)) as server, RealtimeClient(server.url) as client:
        await client.configure()
        with pytest.raises(UnsupportedByServerError, match="resume_token"):
            client.resumed()
        with pytest.raises(UnsupportedByServerError, match="ref_audio"):
            await client.configure(ref_audio="voice.wav")


async def test_autostart_off_sends_the_settings_first() -> None:
    async with ScriptedServer(Script()) as server:
        async with RealtimeClient(server.url, model="m", config=ClientConfig(autostart=False)) as client:
            await client.configure()
            assert client.core.state == "open"
        path, headers = server.requests[0]
        assert "autostart=0" in path
        assert "model=m" in path
        assert len(headers["x-request-id"]) == 32


async def test_the_key_goes_into_the_handshake_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-value")
    async with ScriptedServer(Script()) as server:
        async with RealtimeClient(server.url, config=ClientConfig(headers={"X-Own": "1"})) as client:
            await client.configure()
            assert "sk-secret" not in repr(client) + repr(client.config) + repr(client.core.session)
        _, headers = server.requests[0]
        assert headers["Authorization"] == "Bearer sk-secret-value"
        assert headers["X-Own"] == "1"


async def test_a_refused_update_is_raised_and_the_session_lives() -> None:
    async def refuse(connection) -> None:  # type: ignore[no-untyped-def]
        await connection.send(json.dumps({"type": "session.created", "session": {}}))
        event = json.loads(await connection.recv())
        error = {"code": "bad_voice", "message": "no such voice", "event_id": event["event_id"]}
        await connection.send(json.dumps({"type": "error", "error": error}))
        await connection.wait_closed()

    async with serve(refuse, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with RealtimeClient(f"ws://127.0.0.1:{port}/") as client:
            with pytest.raises(ServerError, match=r"no such voice \(answering session.update\)"):
                await client.configure(voice="nobody")
            assert client.ended is None


async def test_connection_errors_say_what_happened_and_never_the_query() -> None:
    with pytest.raises(ConnectError) as caught:
        await RealtimeClient("ws://127.0.0.1:1/v1/realtime?token=secret").connect()
    assert "127.0.0.1:1" in str(caught.value)
    assert "secret" not in str(caught.value)
    async with ScriptedServer() as server:
        with pytest.raises(ConnectError, match="404"):
            await RealtimeClient(server.url.replace("/v1/realtime", "/nothing")).connect()


async def test_a_wait_has_a_bound() -> None:
    async with ScriptedServer(Script(decide="nothing")) as server, RealtimeClient(server.url) as client:
        await client.configure()
        with pytest.raises(NoDecisionError):
            async for _ in client.stream(SPEECH, pacing=PacingConfig(chunk_ms=100, decision_timeout_s=0.3)):
                pass


async def test_a_reader_that_nobody_reads_from_pauses_and_goes_on() -> None:
    extra = tuple({"type": "server.note", "n": n} for n in range(200))
    async with ScriptedServer(Script(extra_events=extra)) as server:
        async with RealtimeClient(server.url, config=ClientConfig(max_queued_events=4)) as client:
            numbers = []
            while len(numbers) < 200:
                event = await client.next_event(timeout_s=20)
                numbers += [event.raw["n"]] if "n" in event.raw else []
            assert numbers == list(range(200))


async def test_events_ends_with_the_session() -> None:
    async with ScriptedServer(Script(session_limit_s=0.2)) as server, RealtimeClient(server.url) as client:
        kinds = [event.type async for event in client.events()]
        assert kinds == ["session.created", "session.expired"]
        with pytest.raises(SessionEndedError, match="expired: session limit"):
            await client.send(cmd.Heartbeat())
