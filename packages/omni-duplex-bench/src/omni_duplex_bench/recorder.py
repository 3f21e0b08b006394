"""Keeps what went over the wire for events.json, audio and images replaced by their size."""

from __future__ import annotations

from typing import Any

import msgspec

from omni_duplex_bench import events as ev
from omni_duplex_bench.commands import Append, Command

MAX_EVENTS = 200_000
"""Events kept per session; about fifteen hours of 200 ms appends, and a bound on memory."""


class EventRecord(msgspec.Struct, omit_defaults=True):
    """One event: when (on the client's clock until :meth:`Recorder.since`), which way, and what it said."""

    at_s: float
    direction: str
    type: str
    event: dict[str, Any] = {}


class Recorder:
    """An observer of both directions."""

    def __init__(self) -> None:
        self._records: list[EventRecord] = []
        self.dropped = 0

    def received(self, event: ev.ServerEvent) -> None:
        """Note a server event."""
        raw = event.raw
        if isinstance(event, ev.AudioDelta):
            raw = {k: v for k, v in raw.items() if k not in ("delta", "audio")} | {"audio_bytes": len(event.audio)}
            event.raw = raw
        elif isinstance(event, ev.Violation):
            raw = {"type": raw.get("type"), "violation": event.message}
        self._add(EventRecord(event.at_s, "in", event.type, raw))

    def sent(self, command: Command, at_s: float) -> None:
        """Note a client event."""
        if isinstance(command, Append):
            size = len(command.audio) * 3 // 4 - command.audio[-2:].count("=")
            event: dict[str, Any] = {"audio_bytes": size, "video_frames": len(command.video_frames or ())}
            event |= {"sample_rate_hz": command.sample_rate_hz, "audio_end_ms": command.audio_end_ms}
        else:
            event = _short(msgspec.to_builtins(command))
        self._add(EventRecord(at_s, "out", command.type, event))

    def _add(self, record: EventRecord) -> None:
        if len(self._records) < MAX_EVENTS:
            self._records.append(record)
        else:
            self.dropped += 1

    def since(self, start_at_s: float) -> list[EventRecord]:
        """The events with times counted from ``start_at_s``."""
        return [EventRecord(round(r.at_s - start_at_s, 6), r.direction, r.type, r.event) for r in self._records]


def _short(value: Any) -> Any:
    """Long texts (a reference voice as a data URL) replaced by their size."""
    if isinstance(value, dict):
        return {key: _short(inner) for key, inner in value.items()}
    if isinstance(value, str) and len(value) > 4096:
        return f"<{len(value)} characters>"
    return value
