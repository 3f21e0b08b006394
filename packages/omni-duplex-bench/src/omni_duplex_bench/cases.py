"""What is replayed: one recording or video, where it came from, and where its artifacts go."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from omni_duplex_bench.audio import Pcm


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


@dataclass(frozen=True, slots=True)
class Prepared:
    """A decoded input: mono samples, shape (samples,), and JPEG frames with their times in seconds."""

    case: Case
    pcm: Pcm
    rate_hz: int
    duration_s: float
    frames: tuple[tuple[float, bytes], ...] = ()
    warnings: tuple[str, ...] = ()


def safe_name(text: str) -> str:
    """A file name made of ``text``: letters, digits, dot, dash and underscore, never hidden or empty."""
    return re.sub(r"[^\w.-]+", "_", text).lstrip(".") or "case"
