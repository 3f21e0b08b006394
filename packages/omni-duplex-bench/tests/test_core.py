"""The session core by rule and by property: no order of events loses or doubles a response, or raises."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from omni_duplex_bench import CoreConfig, DialectMismatchError, SessionCore, SessionEndedError
from omni_duplex_bench import commands as cmd
from omni_duplex_bench import events as ev

AUDIO = base64.b64encode(b"\1\0" * 240).decode()


class Driver:
    """Feeds a core as a server would, a tenth of a second apart."""

    def __init__(self, config: CoreConfig | None = None) -> None:
        self.core = SessionCore(config)
        self.now = 0.0

    def get(self, kind: str, **fields: Any) -> ev.ServerEvent:
        self.now += 0.1
        return self.core.receive(json.dumps({"type": kind, **fields}), self.now)

    def created(self, rid: str) -> ev.ServerEvent:
        return self.get("response.created", response={"id": rid})

    def audio(self, rid: str) -> ev.ServerEvent:
        return self.get("response.output_audio.delta", response_id=rid, delta=AUDIO)

    def done(self, rid: str, status: str = "completed") -> ev.ServerEvent:
        return self.get("response.done", response={"id": rid, "status": status})

    def commit(self, *, final: bool = True) -> None:
        self.now += 0.1
        self.core.send(cmd.Commit(), self.now, final=final)

    def committed(self, **fields: Any) -> ev.ServerEvent:
        return self.get("input_audio_buffer.committed", item_id="i", **fields)


def test_a_terminal_response_after_the_final_commit_completes() -> None:
    d = Driver()
    d.commit()
    assert d.core.complete_after_commit() is None
    d.committed()
    d.created("r")
    assert d.core.complete_after_commit() is None
    d.audio("r")
    d.done("r")
    assert d.core.complete_after_commit() == "response"


def test_a_cancelled_response_is_no_decision() -> None:
    d = Driver()
    d.commit()
    d.committed()
    d.created("r")
    d.done("r", "cancelled")
    assert d.core.complete_after_commit() is None
    d.created("s")
    d.done("s")
    assert d.core.complete_after_commit() == "response"


def test_the_models_listen_completes_and_buffering_does_not() -> None:
    d = Driver()
    d.commit()
    d.committed()
    d.get("response.listen", metadata={"model_listen": True}, buffering=True)
    d.get("response.listen", metadata={"model_listen": False})
    assert d.core.complete_after_commit() is None
    d.get("response.listen", metadata={"model_listen": True})
    assert d.core.complete_after_commit() == "listen"


def test_a_decision_before_the_commit_is_acknowledged_answers_something_earlier() -> None:
    d = Driver()
    d.created("early")
    d.commit()
    d.done("early")
    d.get("response.listen", metadata={"model_listen": True})
    assert d.core.complete_after_commit() is None
    d.committed()
    assert d.core.complete_after_commit() is None


def test_without_overlap_the_running_response_ends_the_turn_and_with_it_the_next_one_does() -> None:
    for deferred in (False, True):
        d = Driver()
        d.created("running")
        d.commit()
        d.committed(**({"event": {"overlap_deferred": True}} if deferred else {}))
        d.done("running")
        assert d.core.complete_after_commit() == (None if deferred else "response")
        d.created("next")
        assert d.core.complete_after_commit() is None
        d.done("next")
        assert d.core.complete_after_commit() == "response"


def test_a_refused_empty_commit_completes_once_nothing_runs() -> None:
    d = Driver()
    d.created("r")
    d.commit()
    d.get("error", error={"code": "input_audio_buffer_commit_empty", "message": "", "event_id": "evt_c1"})
    assert d.core.complete_after_commit() is None
    d.done("r")
    assert d.core.complete_after_commit() == "response"


def test_when_the_server_ends_turns_the_last_speech_must_be_committed_and_answered() -> None:
    d = Driver()
    d.get("input_audio_buffer.speech_started")
    d.get("input_audio_buffer.speech_stopped")
    d.committed()
    d.created("a")
    d.done("a")
    assert d.core.complete_after_input(10.0) is None
    assert d.core.complete_after_input(0.0) == "response"
    d.get("input_audio_buffer.speech_started")
    assert d.core.complete_after_input(0.0) is None


def test_errors_are_tied_to_the_command_and_change_nothing() -> None:
    d = Driver()
    d.created("r")
    message = json.loads(d.core.send(cmd.CreateResponse(), 0.0))
    event = d.get("error", error={"message": "active", "event_id": message["event_id"]})
    assert isinstance(event, ev.ErrorEvent)
    assert event.command == "response.create"
    assert [r.status for r in d.core.ledger] == [None]


def test_one_dialect_is_told_from_the_other() -> None:
    d = Driver(CoreConfig(dialect="beta"))
    d.created("r")
    with pytest.raises(DialectMismatchError, match="speaks the beta event names, the server answered with the ga ones"):
        d.audio("r")
    auto = Driver()
    auto.created("r")
    auto.audio("r")
    mixed = auto.get("response.audio.delta", response_id="r", delta=AUDIO)
    assert isinstance(mixed, ev.Violation)
    assert auto.core.ledger["r"].audio_bytes == 480


def test_a_wrong_format_or_a_rate_that_changes_is_a_violation() -> None:
    d = Driver()
    d.created("r")
    d.get("response.output_audio.delta", response_id="r", delta=AUDIO, sample_rate_hz=16_000, format="pcm16")
    for wrong in ({"sample_rate_hz": 8000}, {"format": "g711_ulaw"}):
        assert isinstance(d.get("response.output_audio.delta", response_id="r", delta=AUDIO, **wrong), ev.Violation)
    assert d.core.ledger["r"].audio_s == pytest.approx(0.015)


def test_nothing_is_sent_after_the_end_and_the_reason_is_kept() -> None:
    d = Driver()
    d.get("session.created", session={"id": "s"})
    assert isinstance(d.get("session.created", session={}), ev.Violation)
    d.get("session.closed", reason="idle")
    with pytest.raises(SessionEndedError, match="idle"):
        d.core.send(cmd.Heartbeat(), 1.0)


def test_capabilities_turn_detection_and_rates_are_read_from_the_settings() -> None:
    d = Driver()
    assert not d.core.extended
    assert not d.core.server_ends_turns
    output = {"format": {"type": "audio/pcm", "rate": 16_000}}
    vad = {"turn_detection": {"type": "server_vad"}}
    d.get("session.created", session={"capabilities": {"a": 1}, "audio": {"input": vad, "output": output}})
    assert d.core.extended
    assert d.core.server_ends_turns
    assert d.core.output_rate_hz == 16_000
    d.get("session.updated", session={"audio": {"input": {"turn_detection": None}}})
    assert not d.core.server_ends_turns


def test_any_order_of_events_neither_loses_nor_doubles_a_response() -> None:
    hypothesis = pytest.importorskip("hypothesis", reason="property tests need hypothesis")
    st = hypothesis.strategies
    ids = st.sampled_from(["a", "b", "c"])
    step = st.one_of(
        st.tuples(st.sampled_from(["created", "audio", "text", "done", "cancelled", "audio_done"]), ids),
        st.tuples(st.sampled_from(["committed", "deferred", "listen", "buffering", "commit", "junk", "error"]), ids),
    )

    @hypothesis.settings(max_examples=300, derandomize=True, deadline=None)
    @hypothesis.given(st.lists(step, max_size=40))
    def check(steps: list[tuple[str, str]]) -> None:
        d, alive, dead, early = Driver(), set[str](), dict[str, str](), set[str]()
        for what, rid in steps:
            event: ev.ServerEvent | None = None
            legal = True
            match what:
                case "created":
                    legal = rid not in alive and rid not in dead
                    event = d.created(rid)
                    alive |= {rid} if legal else set()
                case "audio":
                    legal, event = rid in alive, d.audio(rid)
                case "audio_done":
                    legal, event = rid in alive, d.get("response.output_audio.done", response_id=rid)
                case "text":
                    legal = rid in alive
                    event = d.get("response.output_audio_transcript.delta", response_id=rid, delta="x")
                case "done" | "cancelled":
                    legal = rid in alive or (what == "done" and rid in early)
                    if what == "done":
                        event = d.done(rid)
                        early.discard(rid)
                    else:
                        event = d.get("response.cancelled", response_id=rid)
                        early |= {rid} if rid in alive else set()
                    if rid in alive:
                        alive.remove(rid)
                        dead[rid] = "completed" if what == "done" else "cancelled"
                case "committed":
                    d.committed()
                case "deferred":
                    d.committed(overlap_deferred=True)
                case "listen" | "buffering":
                    d.get("response.listen", metadata={"model_listen": True}, buffering=what == "buffering")
                case "commit":
                    d.commit()
                case "junk":
                    legal, event = False, d.core.receive(b"{", d.now)
                case "error":
                    d.get("error", error={"message": "m"})
            if event is not None:
                assert isinstance(event, ev.Violation) is not legal
            states = {r.response_id: r.status for r in d.core.ledger}
            assert states == dict.fromkeys(alive) | dead
            assert {r.response_id for r in d.core.ledger.active} == alive
            if alive:
                assert d.core.answered is None

    check()


def test_any_bytes_are_an_event_or_a_violation() -> None:
    hypothesis = pytest.importorskip("hypothesis", reason="property tests need hypothesis")
    st = hypothesis.strategies
    scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)

    def wrap(inner: Any) -> Any:
        return st.lists(inner) | st.dictionaries(st.text(max_size=8), inner)

    values = st.recursive(scalars, wrap, max_leaves=8)
    session = ["session.created", "session.closed", "input_audio_buffer.committed", "error"]
    response = ["response.created", "response.done", "response.listen", "response.audio.delta", "response.text.delta"]
    kinds = st.sampled_from([*session, *response])
    names = ["response", "response_id", "metadata", "session", "error", "delta", "event", "sample_rate_hz", "status"]
    known = st.fixed_dictionaries({"type": kinds}, optional=dict.fromkeys(names, values))

    @hypothesis.settings(max_examples=300, derandomize=True, deadline=None)
    @hypothesis.given(st.one_of(st.binary(max_size=64), known))
    def check(message: bytes | dict[str, Any]) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        assert isinstance(SessionCore().receive(data, 0.0), ev.ServerEvent)

    check()
