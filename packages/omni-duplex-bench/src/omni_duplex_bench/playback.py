"""A player without a sound card: when each piece of received audio would have been heard."""

from __future__ import annotations

from dataclasses import dataclass

from omni_duplex_bench.audio import Interval


@dataclass(slots=True)
class Segment:
    """One queued piece. It is heard from ``start_s`` to ``end_s``; clearing moves ``end_s`` back."""

    response_id: str
    item_id: str | None
    start_s: float
    end_s: float
    audio: bytearray
    sample_rate_hz: int


@dataclass(frozen=True, slots=True)
class Played:
    """How much of one response has been heard."""

    response_id: str
    item_id: str | None
    played_ms: int


class Playback:
    """Plays segments one after the other, each at max(received, end of the one before).

    ``keep_audio=False`` forgets the samples, so that memory does not grow with the audio.
    """

    def __init__(self, *, keep_audio: bool = True) -> None:
        self._keep = keep_audio
        self._segments: list[Segment] = []
        self._end_s = 0.0
        self._acked: dict[str, int] = {}

    @property
    def segments(self) -> tuple[Segment, ...]:
        """Everything that was or will be heard, in order."""
        return tuple(self._segments)

    @property
    def end_s(self) -> float:
        """When the last queued sample will have been heard."""
        return self._end_s

    def push(self, response_id: str, item_id: str | None, audio: bytes, rate_hz: int, at_s: float) -> Segment:
        """Queue whole samples received at ``at_s``."""
        start = max(at_s, self._end_s)
        end = start + len(audio) / 2 / rate_hz
        self._end_s = end
        last = self._segments[-1] if self._segments else None
        if last is not None and (last.response_id, last.sample_rate_hz, last.end_s) == (response_id, rate_hz, start):
            last.end_s = end
            if self._keep:
                last.audio += audio
            return last
        segment = Segment(response_id, item_id, start, end, bytearray(audio if self._keep else b""), rate_hz)
        self._segments.append(segment)
        return segment

    def clear(self, at_s: float, response_id: str | None = None) -> float:
        """Drop what is not yet heard (of one response, or of all); returns the seconds dropped."""
        dropped, kept, end = 0.0, [], 0.0
        for segment in self._segments:
            if response_id is None or segment.response_id == response_id:
                heard_until = max(segment.start_s, min(segment.end_s, at_s))
                dropped += segment.end_s - heard_until
                segment.audio = segment.audio[: 2 * round((heard_until - segment.start_s) * segment.sample_rate_hz)]
                segment.end_s = heard_until
            elif segment.start_s > at_s:
                start = max(at_s, end)
                segment.start_s, segment.end_s = start, start + segment.end_s - segment.start_s
            if segment.end_s > segment.start_s:
                kept.append(segment)
                end = segment.end_s
        self._segments, self._end_s = kept, end
        return dropped

    def heard(self, response_id: str | None = None) -> tuple[Interval, ...]:
        """When audio (of one response, or any) is heard; touching pieces are joined."""
        joined: list[Interval] = []
        for segment in self._segments:
            if response_id is not None and segment.response_id != response_id:
                continue
            if joined and abs(segment.start_s - joined[-1].end_s) < 1e-9:
                joined[-1] = Interval(joined[-1].start_s, segment.end_s)
            else:
                joined.append(Interval(segment.start_s, segment.end_s))
        return tuple(joined)

    def progress(self, at_s: float) -> list[Played]:
        """What has been heard by ``at_s`` and was not reported before, a line per response."""
        heard: dict[str, tuple[str | None, float]] = {}
        for segment in self._segments:
            if segment.start_s >= at_s:
                break
            before = heard.get(segment.response_id, (segment.item_id, 0.0))[1]
            heard[segment.response_id] = (segment.item_id, before + min(segment.end_s, at_s) - segment.start_s)
        news = []
        for response_id, (item_id, seconds) in heard.items():
            played_ms = int(seconds * 1000 + 1e-6)
            if played_ms > self._acked.get(response_id, 0):
                self._acked[response_id] = played_ms
                news.append(Played(response_id, item_id, played_ms))
        return news
