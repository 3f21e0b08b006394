"""The turn detector: from one speech probability per frame to the beginning, the weight and the end of a turn.

Pure: it sees probabilities and positions, never audio and never a clock. Positions are samples at 16 kHz since the
stream began. For every turn it says, in this order: ``Onset`` once, ``Sustained`` at most once, ``Pause`` any number
of times, ``TurnEnd`` once.
"""

from __future__ import annotations

from dataclasses import dataclass

from omni_serve.contract import INPUT_RATE_HZ
from omni_serve.voice.config import TurnConfig
from omni_serve.voice.parts import FRAME_MS, FRAME_SAMPLES

_PER_MS = INPUT_RATE_HZ // 1000


@dataclass(frozen=True, slots=True)
class Onset:
    """Speech began. ``start`` is the first sample of the turn, prefix included; ``speech`` that of the speech."""

    start: int
    speech: int


@dataclass(frozen=True, slots=True)
class Sustained:
    """The turn holds enough speech to be meant: it may stop a reply."""

    at: int


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence has lasted long enough that the turn may be over; ``[start, end)`` is the turn so far."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The turn is over. ``[start, end)`` is its audio, ``speech_end`` the end of its last speech frame.

    ``speech_ms`` is how much of it was speech.
    """

    start: int
    end: int
    speech_end: int
    speech_ms: int
    sustained: bool


TurnEvent = Onset | Sustained | Pause | TurnEnd


class TurnDetector:
    """Feed frames in order with :meth:`frame`; it answers with what they decided."""

    def __init__(self, config: TurnConfig) -> None:
        self._config = config
        self._position = 0
        self._floor = 0
        self._run = 0
        self._in_turn = False
        self._begin(0)

    def _begin(self, start: int) -> None:
        self._start = start
        self._speech_end = start
        self._speech_ms = 0
        self._silence_ms = 0
        self._sustained = False
        self._paused = False

    @property
    def position(self) -> int:
        """Samples seen so far."""
        return self._position

    @property
    def in_turn(self) -> bool:
        """Whether a turn is open."""
        return self._in_turn

    @property
    def keep_from(self) -> int:
        """The oldest sample that a later event may still name; older audio can be let go."""
        if self._in_turn:
            return self._start
        return max(self._floor, self._position - self._run * FRAME_SAMPLES - self._config.prefix_ms * _PER_MS)

    def configure(self, config: TurnConfig) -> None:
        """Take new thresholds from the next frame on; an open turn stays open."""
        self._config = config

    def frame(self, probability: float) -> tuple[TurnEvent, ...]:
        """Take the next frame's probability of speech and say what it decided."""
        config = self._config
        start = self._position
        self._position += FRAME_SAMPLES
        if not self._in_turn:
            self._run = self._run + 1 if probability >= config.threshold else 0
            if self._run * FRAME_MS < config.onset_ms:
                return ()
            speech = self._position - self._run * FRAME_SAMPLES
            self._begin(max(self._floor, speech - config.prefix_ms * _PER_MS))
            self._in_turn = True
            self._speech_ms = self._run * FRAME_MS
            self._speech_end = self._position
            self._run = 0
            return (Onset(self._start, speech), *self._weigh())
        events: list[TurnEvent] = []
        if probability >= config.threshold - (config.hysteresis if self._silence_ms == 0 else 0.0):
            self._silence_ms = 0
            self._paused = False
            self._speech_ms += FRAME_MS
            self._speech_end = start + FRAME_SAMPLES
            events.extend(self._weigh())
        else:
            self._silence_ms += FRAME_MS
            if not self._paused and config.early_ms <= self._silence_ms < config.silence_ms:
                self._paused = True
                events.append(Pause(self._start, self._tail()))
        too_long = self._position - self._start >= config.max_turn_ms * _PER_MS
        if self._silence_ms >= config.silence_ms or too_long:
            events.append(self._close())
        return tuple(events)

    def finish(self) -> TurnEnd | None:
        """Close the open turn by hand; None when there is none."""
        self._run = 0
        return self._close() if self._in_turn else None

    def clear(self) -> None:
        """Forget an open turn and everything before this position."""
        self._in_turn = False
        self._run = 0
        self._floor = self._position

    def _weigh(self) -> tuple[TurnEvent, ...]:
        if self._sustained or self._speech_ms < self._config.sustain_ms:
            return ()
        self._sustained = True
        return (Sustained(self._position),)

    def _tail(self) -> int:
        return min(self._position, self._speech_end + self._config.suffix_ms * _PER_MS)

    def _close(self) -> TurnEnd:
        ended = TurnEnd(self._start, self._tail(), self._speech_end, self._speech_ms, self._sustained)
        self._in_turn = False
        self._floor = ended.end
        return ended
