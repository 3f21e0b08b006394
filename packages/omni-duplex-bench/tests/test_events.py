"""Decoding: both spellings, unknown things tolerated, malformed ones named."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from omni_duplex_bench import events as ev
from omni_duplex_bench.errors import MalformedEventError


def decode(**event: Any) -> ev.ServerEvent:
    return ev.decode(json.dumps(event))


@pytest.mark.parametrize("prefix", ["response.output_audio", "response.audio"])
def test_both_spellings_mean_the_same(prefix: str) -> None:
    audio = decode(type=f"{prefix}.delta", response_id="r", item_id="i", delta=base64.b64encode(b"\1\2").decode())
    text = decode(type=f"{prefix}_transcript.delta", response_id="r", delta="hi")
    assert isinstance(audio, ev.AudioDelta)
    assert (audio.audio, audio.response_id, audio.item_id) == (b"\1\2", "r", "i")
    assert isinstance(text, ev.TextDelta)
    assert (text.delta, text.spoken) == ("hi", True)
    assert ev.dialect_of(audio.type) == ev.dialect_of(text.type) == ("ga" if "output" in prefix else "beta")


def test_unknown_fields_are_kept_and_unknown_types_tolerated() -> None:
    event = decode(type="response.created", event_id="e", response={"id": "r", "x": 1}, future={"a": [1]})
    assert isinstance(event, ev.ResponseCreated)
    assert event.raw["future"] == {"a": [1]}
    assert event.event_id == "e"
    assert isinstance(decode(type="session.teleported", where=1), ev.UnknownEvent)


@pytest.mark.parametrize("message", [b"\xff\xfe", "", "nope", "[]", "7", '"x"', "{}", '{"type": 3}', '{"type": ""}'])
def test_what_is_no_event_is_malformed(message: str | bytes) -> None:
    with pytest.raises(MalformedEventError):
        ev.decode(message)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.created", "response": {}},
        {"type": "response.created", "response": 7},
        {"type": "response.done"},
        {"type": "response.audio.delta", "delta": "AAAA"},
        {"type": "response.audio.delta", "response_id": "r", "delta": "not base64!"},
        {"type": "response.audio.delta", "response_id": "r", "delta": 5},
        {"type": "response.audio.delta", "response_id": "r", "delta": "", "sample_rate_hz": 0},
        {"type": "response.audio.delta", "response_id": "r", "delta": "", "sample_rate_hz": True},
        {"type": "response.text.delta", "response_id": "r", "delta": ["x"]},
    ],
)
def test_known_events_without_what_they_must_have_are_malformed(event: dict[str, Any]) -> None:
    with pytest.raises(MalformedEventError) as caught:
        decode(**event, event_id="e7")
    assert caught.value.event_id == "e7"
    assert caught.value.event_type == event["type"]


@pytest.mark.parametrize(
    ("event", "decides"),
    [
        ({"metadata": {"model_listen": True}}, True),
        ({"metadata": {"model_listen": True}, "buffering": True}, False),
        ({"metadata": {"model_listen": True, "buffering": True}}, False),
        ({"metadata": {"model_listen": False}}, False),
        ({}, False),
        ({"metadata": None}, False),
    ],
)
def test_a_listen_decides_when_it_is_the_models_and_nothing_is_buffering(event: dict[str, Any], decides: bool) -> None:
    listen = decode(type="response.listen", **event)
    assert isinstance(listen, ev.Listen)
    assert listen.decides is decides


def test_reasons_and_overlap_are_found_where_servers_put_them() -> None:
    assert decode(type="session.closed", reason="idle").reason == "idle"  # type: ignore[attr-defined]
    assert decode(type="session.expired", event={"reason": "old"}).reason == "old"  # type: ignore[attr-defined]
    for place in ({"overlap_deferred": True}, {"event": {"overlap_deferred": True}}):
        committed = decode(type="input_audio_buffer.committed", item_id="i", **place)
        assert isinstance(committed, ev.InputCommitted)
        assert committed.overlap_deferred


def test_errors_name_the_event_they_answer() -> None:
    event = decode(type="error", event_id="s1", error={"type": "t", "code": "c", "message": "m", "event_id": "mine"})
    assert isinstance(event, ev.ErrorEvent)
    assert (event.message, event.code, event.client_event_id, event.event_id) == ("m", "c", "mine", "s1")
    assert decode(type="error").message == "no message"  # type: ignore[attr-defined]


def test_a_cancelled_event_is_a_done_with_that_status() -> None:
    event = decode(type="response.cancelled", response_id="r")
    assert isinstance(event, ev.ResponseDone)
    assert event.status == "cancelled"
    done = decode(type="response.done", response={"id": "r", "status": "incomplete"})
    assert done.status == "incomplete"  # type: ignore[attr-defined]
