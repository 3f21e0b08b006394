"""What is replayed: one recording or video, where it came from, and where its artifacts go."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from omni_duplex_bench.audio import Interval, Pcm, resample, speech_intervals


@dataclass(frozen=True, slots=True)
class Case:
    """One input. ``case_id`` is unique in a run and a safe relative path; ``subset`` is empty outside datasets."""

    case_id: str
    path: Path
    subset: str = ""
    annotation: Path | None = None
    scene_type: str = ""
    official: bool = False

    @property
    def sample_id(self) -> str:
        """The name the official evaluator knows it by."""
        return self.case_id.replace("/", "__", 1)


@dataclass(frozen=True)
class Prepared:
    """A decoded input: mono samples, shape (samples,), and JPEG frames with their times in seconds.

    What many sessions need of it is worked out once, so that a session's start costs the others no time.
    """

    case: Case
    pcm: Pcm
    rate_hz: int
    duration_s: float
    frames: tuple[tuple[float, bytes], ...] = ()
    warnings: tuple[str, ...] = ()
    _rates: dict[int, Pcm] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def speech(self) -> tuple[Interval, ...]:
        """Where somebody speaks."""
        return speech_intervals(self.pcm, self.rate_hz)

    def at_rate(self, rate_hz: int) -> Pcm:
        """The samples at another rate."""
        if rate_hz not in self._rates:
            self._rates[rate_hz] = resample(self.pcm, self.rate_hz, rate_hz)
        return self._rates[rate_hz]


def safe_name(text: str) -> str:
    """A file name made of ``text``: letters, digits, dot, dash and underscore, never hidden or empty."""
    return re.sub(r"[^\w.-]+", "_", text).lstrip(".") or "case"
