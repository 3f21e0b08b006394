"""Every default of the orchestrator."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Limits of one server.

    Attributes:
        max_sessions: Realtime sessions at a time.
        queue_per_slot: Requests that may wait for each slot of a stage; one more is refused.
        deadline_s: Longest life of a request or a reply.
        input_window_s: Input audio a session may be ahead of the listening stage before append() waits.
        max_recording_s: Longest recording that transcribe() takes.
        max_held_s: Longest audio a session may append without a turn ending, where turns are closed by hand.
        max_events: Events a session keeps for a reader that does not read; past it the session ends.
        murmur_ms: Speech over a reply shorter than this tells it to go on, whatever words it is taken for: a "mhm" has
            200 to 290 ms of it, the shortest words that ask for the floor 350.
        start_limit_s: Longest start of a stage process.
        stop_limit_s: How long a stage process gets to leave before it is killed.
        backoff_s: First pause before a dead stage process is started again; doubles up to ``max_backoff_s``.
        max_backoff_s: See ``backoff_s``.
        stable_s: A stage process that lived this long starts again without a pause beyond the first.
    """

    max_sessions: int = 8
    queue_per_slot: int = 2
    deadline_s: float = 120.0
    input_window_s: float = 30.0
    max_recording_s: float = 1800.0
    max_held_s: float = 600.0
    max_events: int = 8192
    murmur_ms: int = 320
    start_limit_s: float = 120.0
    stop_limit_s: float = 6.0
    backoff_s: float = 0.2
    max_backoff_s: float = 10.0
    stable_s: float = 30.0
