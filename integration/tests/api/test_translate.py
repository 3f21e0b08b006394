"""The pure core: what a translator promises whatever the engine reports, and what parsing promises whatever comes."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest

from omni_serve.api.realtime.audio import InputAudio, OutputAudio
from omni_serve.api.realtime.commands import parse
from omni_serve.api.realtime.dialect import Dialect, dialect_of
from omni_serve.api.realtime.fields import WireError
from omni_serve.api.realtime.session_settings import AudioFormat, WireSession, rendered, updated
from omni_serve.api.realtime.translate import Translator
from omni_serve.contract import (
    Listening,
    ReplyAudio,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SessionEvent,
    SessionFault,
    SpeechStarted,
    SpeechStopped,
    Transcribed,
    TurnCommitted,
    TurnDetection,
)

pytest.importorskip("hypothesis", reason="needs hypothesis")
from hypothesis import given, settings
from hypothesis import strategies as st

STATUSES = st.sampled_from(["completed", "cancelled", "failed", "incomplete"])
REPLIES = st.sampled_from(["r1", "r2", "r3"])
PCM = np.arange(48, dtype=np.int16)
EVENTS: st.SearchStrategy[SessionEvent] = st.one_of(
    st.builds(SpeechStarted, st.integers(0, 9), st.none() | REPLIES),
    st.builds(SpeechStopped, st.integers(0, 9)),
    st.builds(TurnCommitted, st.sampled_from(["t1", "t2"]), st.just(5), st.booleans()),
    st.builds(Transcribed, st.sampled_from(["t1", "t2"]), st.text(max_size=5), st.just(5), st.just(1.0)),
    st.builds(Listening, st.none() | st.just("t1"), st.sampled_from(["backchannel", "no_text", "not_requested"])),
    st.builds(ReplyStarted, REPLIES, st.none()),
    st.builds(ReplyText, REPLIES, st.text(max_size=5)),
    st.builds(ReplyAudio, REPLIES, st.just(PCM)),
    st.builds(ReplyDone, REPLIES, STATUSES, st.text(), st.just(1)),
    st.builds(SessionFault, st.just("fault"), st.text(max_size=5)),
)  # fmt: skip


@given(st.lists(EVENTS, max_size=40), st.sampled_from(list(Dialect)), st.sampled_from([("audio",), ("text",)]))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_any_order_of_engine_events_keeps_the_wires_promises(
    events: list[SessionEvent], dialect: Dialect, modalities: Any
) -> None:
    session = updated(WireSession("m"), {"output_modalities": list(modalities)})
    translator = Translator(dialect, session)
    sent = [wire for event in events for wire in translator.translate(event)]
    json.dumps(sent, allow_nan=False)
    ids = [wire["event_id"] for wire in sent]
    assert len(set(ids)) == len(ids)
    active: set[str] = set()
    begun: list[str] = []
    for wire in sent:
        kind, of = wire["type"], wire.get("response_id")
        if kind == "response.created":
            assert wire["response"]["id"] not in active
            active.add(wire["response"]["id"])
            begun.append(wire["response"]["id"])
        elif kind == "response.done":
            active.remove(wire["response"]["id"])
        elif kind.startswith("response.") and of is not None:
            assert of in active, f"{kind} outside its response"
    assert not [wire for wire in sent if ".output_" in wire["type"] and dialect is Dialect.BETA and "item" not in wire]
    assert (translator.active is not None) == bool(active)


KEYS = ["type", "event_id", "audio", "session", "response", "item", "item_id", "played_ms", "metadata", "content"]
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.text() | st.binary().map(lambda data: data.decode("latin-1")) | JSON.map(json.dumps))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_whatever_a_client_sends_is_a_command_or_one_typed_error(text: str) -> None:
    try:
        command: Any = parse(text)
    except WireError as error:
        command = error.code
    assert command


SETTINGS = [
    "type", "instructions", "audio", "turn_detection", "modalities", "output_modalities", "voice", "temperature",
    "input_audio_format", "max_output_tokens", "tools", "speed",
]  # fmt: skip
NESTED = st.sampled_from(["type", "threshold", "input", "output", "format", "rate"])
SCALARS = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4)
VALUES = (
    SCALARS
    | st.lists(st.sampled_from(["text", "audio", ""]), max_size=2)
    | st.dictionaries(NESTED, SCALARS | st.dictionaries(NESTED, SCALARS, max_size=2), max_size=2)
)


@given(st.dictionaries(st.sampled_from(SETTINGS), VALUES, max_size=5))
@settings(max_examples=400, deadline=None, derandomize=True)
def test_whatever_a_session_update_says_settles_or_changes_nothing(raw: dict[str, Any]) -> None:
    try:
        after = updated(WireSession("m"), raw)
    except WireError:
        return
    for dialect in Dialect:

        def show(session: WireSession, of: Dialect = dialect) -> dict[str, Any]:
            return rendered(session, of, session_id="s", expires_at=1, capabilities={}, resume_token=None)

        shown = show(after)
        json.dumps(shown, allow_nan=False)
        assert show(updated(after, shown)) == shown, "a session that is sent back changes nothing"


def test_the_older_clients_settings_mean_the_same() -> None:
    raw = {
        "modalities": ["text"],
        "input_audio_format": "g711_ulaw",
        "turn_detection": {
            "type": "server_vad",
            "threshold": 0.7,
            "silence_duration_ms": 300,
            "create_response": False,
        },
        "max_response_output_tokens": 7,
    }
    beta = updated(WireSession("m"), raw)
    ga = updated(
        WireSession("m"),
        {
            "type": "realtime",
            "output_modalities": ["text"],
            "audio": {"input": {"format": {"type": "audio/pcmu"}, "turn_detection": raw["turn_detection"]}},
            "max_output_tokens": 7,
        },
    )
    assert beta == ga
    assert beta.options.turn_detection == TurnDetection(0.7, 300, 200, False, True)
    assert updated(beta, {"turn_detection": None}).options.turn_detection is None


@pytest.mark.parametrize(
    ("header", "protocols", "flag", "dialect"),
    [
        (None, [], None, Dialect.GA),
        ("realtime=v1", [], None, Dialect.BETA),
        ("other=v2, realtime=v1", [], None, Dialect.BETA),
        ("realtime=v2", [], None, Dialect.GA),
        (None, ["realtime", "openai-beta.realtime-v1"], None, Dialect.BETA),
        (None, ["realtime"], "1", Dialect.BETA),
    ],
)
def test_who_announces_the_beta_gets_it(
    header: str | None, protocols: list[str], flag: str | None, dialect: Dialect
) -> None:
    assert dialect_of(header, protocols, flag) is dialect


@pytest.mark.parametrize("encoding", ["pcmu", "pcma"])
def test_g711_round_trips_within_its_own_step(encoding: Any) -> None:
    tone = (np.sin(np.arange(24_000) * 2 * np.pi * 440 / 24_000) * 12_000).astype(np.int16)
    form = AudioFormat(encoding, 8_000)
    out = OutputAudio(form)
    wire = out.give(tone) + out.give(np.zeros(0, np.int16), last=True)
    assert len(wire) == 8_000
    audio = InputAudio()
    back = np.concatenate([audio.take(wire, form, None), audio.flush()])
    assert abs(back.size - 16_000) <= 2
    middle = back[2_000:14_000].astype(float)
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(12_000 / np.sqrt(2), rel=0.03)
    with pytest.raises(WireError, match="8000"):
        audio.take(wire, form, 16_000)


def test_known_codes_of_g711() -> None:
    """From ITU-T G.711, tables 1a and 2a: the loudest, the softest."""
    audio = InputAudio()
    assert audio.take(b"\x80\xff\x00\x7f", AudioFormat("pcmu", 16_000), None).tolist() == [32124, 0, -32124, 0]
    assert InputAudio().take(b"\xaa\xd5\x2a\x55", AudioFormat("pcma", 16_000), None).tolist() == [32256, 8, -32256, -8]


@pytest.mark.parametrize("chunk_ms", [10, 15, 20])
def test_small_chunks_keep_length_and_loudness(chunk_ms: int) -> None:
    rate = 44_100
    tone = (np.sin(np.arange(rate * 2) * 2 * np.pi * 440 / rate) * 10_000).astype("<i2")
    audio, size = InputAudio(), rate * chunk_ms // 1000
    parts = [
        audio.take(tone[i : i + size].tobytes(), AudioFormat("pcm", rate), None) for i in range(0, tone.size, size)
    ]
    back = np.concatenate([*parts, audio.flush()]).astype(float)
    assert abs(back.size - 32_000) <= 2
    assert np.sqrt(np.mean(back[1000:-1000] ** 2)) == pytest.approx(10_000 / np.sqrt(2), rel=0.01)


def test_a_change_of_rate_in_between_loses_nothing() -> None:
    audio = InputAudio()
    total = 0
    for rate in (48_000, 16_000, 8_000, 44_100):
        total += audio.take(np.zeros(rate, "<i2").tobytes(), AudioFormat("pcm", 24_000), rate).size
    assert abs(total + audio.flush().size - 4 * 16_000) <= 4


def test_base64_of_a_delta_is_the_audio() -> None:
    translator = Translator(Dialect.GA, WireSession("m"))
    translator.translate(ReplyStarted("r", None))
    (delta,) = translator.translate(ReplyAudio("r", PCM))
    assert base64.b64decode(delta["delta"]) == PCM.tobytes()
