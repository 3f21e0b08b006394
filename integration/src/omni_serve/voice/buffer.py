"""A session's recent input audio, addressed by its position in the stream."""

from __future__ import annotations

import numpy as np

from omni_serve.contract import Pcm

_FIRST = 1 << 15


class AudioBuffer:
    """Keeps ``[base, end)`` of a stream of samples; what lies before ``base`` has been let go."""

    def __init__(self) -> None:
        self._data: Pcm = np.zeros(_FIRST, np.int16)
        self._used = 0
        self._base = 0

    @property
    def base(self) -> int:
        """The oldest position still held."""
        return self._base

    @property
    def end(self) -> int:
        """One past the newest position."""
        return self._base + self._used

    def append(self, pcm: Pcm) -> None:
        """Add samples at the end."""
        need = self._used + pcm.size
        if need > self._data.size:
            grown: Pcm = np.zeros(max(need, 2 * self._data.size), np.int16)
            grown[: self._used] = self._data[: self._used]
            self._data = grown
        self._data[self._used : need] = pcm
        self._used = need

    def cut(self, start: int, end: int) -> Pcm:
        """A copy of ``[start, end)``; raises ValueError where that is not held."""
        if not self._base <= start <= end <= self.end:
            raise ValueError(f"[{start}, {end}) is not within [{self._base}, {self.end})")
        return self._data[start - self._base : end - self._base].copy()

    def forget(self, before: int) -> None:
        """Let go of everything before ``before``; the memory shrinks again once little is left."""
        drop = min(max(before - self._base, 0), self._used)
        if drop == 0:
            return
        left = self._used - drop
        size = max(_FIRST, 2 * left) if self._data.size > 8 * max(left, _FIRST) else self._data.size
        kept: Pcm = self._data if size == self._data.size else np.zeros(size, np.int16)
        kept[:left] = self._data[drop : self._used].copy()
        self._data, self._used, self._base = kept, left, self._base + drop
