"""What a listener has heard of a reply by now. Pure: the time is always given."""

from __future__ import annotations


class PlaybackClock:
    """One reply's playback position.

    Generation runs ahead of playback. Without acknowledgements the listener is assumed to play each piece as soon as
    it was sent and the one before it had ended; an acknowledged position corrects that from then on.
    """

    def __init__(self) -> None:
        self._sent_ms = 0.0
        self._ends_s = 0.0

    def sent(self, duration_ms: float, now_s: float) -> None:
        """Another piece of audio went out."""
        self._ends_s = max(self._ends_s, now_s) + duration_ms / 1e3
        self._sent_ms += duration_ms

    def acknowledge(self, played_ms: float, now_s: float) -> None:
        """The listener says how much was played; what cannot be (more than was sent, less than none) is bounded."""
        left_ms = self._sent_ms - min(max(played_ms, 0.0), self._sent_ms)
        self._ends_s = now_s + left_ms / 1e3

    def heard_ms(self, now_s: float) -> float:
        """How much of the reply has been played."""
        return max(0.0, self._sent_ms - max(0.0, self._ends_s - now_s) * 1e3)

    def playing(self, now_s: float) -> bool:
        """Whether something that was sent has yet to be heard."""
        return now_s < self._ends_s
