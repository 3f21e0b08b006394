"""The options of a run, checked against one another before anything is loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from omni_duplex_bench.aggregate import parse_goodput
from omni_duplex_bench.errors import UsageError
from omni_duplex_bench.urls import realtime_url

SUBSETS = ("1q1a", "1q1a_math", "1qna")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What ``run`` was asked for. ``given`` names the options that the user wrote."""

    url: str
    inputs: tuple[str, ...]
    output_dir: Path
    model: str | None = None
    dialect: Literal["auto", "ga", "beta"] = "auto"
    turns: Literal["auto", "server", "commit"] = "auto"
    concurrency: tuple[int, ...] = (1,)
    request_rate: tuple[float, ...] = ()
    warmups: int = 0
    repeat: int = 1
    goodput: tuple[str, ...] = ()
    percentiles: tuple[float, ...] = (50.0, 90.0, 95.0, 99.0)
    subsets: tuple[str, ...] = SUBSETS
    num_prompts: int = 3
    seed: int = 0
    shuffle: bool = True
    ref_audio: Path | None = None
    instructions: str | None = None
    voice: str | None = None
    require_response: bool = False
    session_timeout_s: float = 900.0
    media_timeout_s: float = 600.0
    max_video_s: float = 3600.0
    decision_timeout_s: float = 60.0
    tail_s: float = 10.0
    chunk_ms: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    resume: bool = False
    given: frozenset[str] = frozenset()

    def check(self) -> None:
        """Refuse what cannot be meant.

        Raises:
            UsageError: In one sentence that names the options.
        """
        realtime_url(self.url)
        parse_goodput(self.goodput)
        self._check_bounds()
        self._check_contradictions()

    def _check_bounds(self) -> None:
        if not self.inputs:
            raise UsageError("--input: name at least one recording, video, folder or dataset")
        positive = ("session_timeout_s", "media_timeout_s", "max_video_s", "decision_timeout_s", "tail_s")
        for name in positive:
            if not 0 < getattr(self, name) < math.inf:
                raise UsageError(f"--{name.replace('_', '-')} must be a positive number of seconds")
        if not self.concurrency or any(value < 1 for value in self.concurrency):
            raise UsageError("--concurrency: whole numbers from 1, such as 1,2,4")
        if any(not 0 < value < math.inf for value in self.request_rate):
            raise UsageError("--request-rate: positive numbers of sessions a second, such as 0.5,1,2")
        if not self.percentiles or any(not 0 <= value <= 100 for value in self.percentiles):
            raise UsageError("--percentiles: numbers from 0 to 100, such as 50,90,99")
        for name in ("num_prompts", "warmups"):
            if getattr(self, name) < 0:
                raise UsageError(f"--{name.replace('_', '-')} must be 0 or more")
        if self.repeat < 1:
            raise UsageError("--repeat must be 1 or more")
        unknown = [name for name in self.subsets if name not in SUBSETS]
        if unknown or not self.subsets:
            raise UsageError(f"--subsets: unknown {', '.join(unknown) or '(none)'}; known: {', '.join(SUBSETS)}")
        if self.ref_audio is not None and not self.ref_audio.is_file():
            raise UsageError(f"--ref-audio: {self.ref_audio} is no file")
        if not 20 <= self.chunk_ms <= 5000:
            raise UsageError("--chunk-ms must be 20 to 5000")

    def _check_contradictions(self) -> None:
        if not self.shuffle and "seed" in self.given and not self.request_rate:
            raise UsageError("--no-shuffle contradicts --seed: without shuffling or a request rate nothing is drawn")
        if len(self.concurrency) > 1 and len(self.request_rate) > 1:
            raise UsageError("--concurrency and --request-rate cannot both be sweeps; give one value to one of them")
        if self.resume and "output_dir" not in self.given:
            raise UsageError("--resume needs --output-dir, the folder of the run to go on with")
        if self.resume and self.is_sweep:
            raise UsageError("--resume contradicts a sweep: finish its points one by one")
        if self.resume and self.repeat > 1 and self.warmups:
            raise UsageError("--resume contradicts --warmups with --repeat: which session was warm is not known")
        if self.turns == "commit" and "tail_s" in self.given:
            raise UsageError("--tail-s is the silence that a server's detector gets; it contradicts --turns commit")
        plain = [
            name for name in self.inputs if Path(name).suffix.lower() in (".wav", ".wave", ".mp4", ".mkv", ".webm")
        ]
        if len(plain) == len(self.inputs):
            for name in ("subsets", "num_prompts", "shuffle"):
                if name in self.given:
                    raise UsageError(f"--{name.replace('_', '-')} selects from datasets, and every --input is one file")
        if self.session_timeout_s < self.decision_timeout_s and "decision_timeout_s" in self.given:
            raise UsageError("--decision-timeout-s is longer than --session-timeout-s, so it would never be reached")

    @property
    def is_sweep(self) -> bool:
        """Whether there is more than one point."""
        return len(self.concurrency) * max(1, len(self.request_rate)) > 1


def numbers(text: str, kind: type[int] | type[float], option: str) -> tuple[float, ...]:
    """Parse ``1,2,4``.

    Raises:
        UsageError: If a part is no number.
    """
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise UsageError(f"{option}: {text!r} is no list of numbers separated by commas") from error
