"""Decodes every input before the clock starts; one that fails is that case's result, not the run's end."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from omni_duplex_bench.bench import Failed
from omni_duplex_bench.cases import Case, Prepared
from omni_duplex_bench.errors import MediaError
from omni_duplex_bench.media import MediaConfig, decode_media
from omni_duplex_bench.wavfile import read_wav


def prepare_case(case: Case, config: MediaConfig) -> Prepared:
    """Decode one input.

    Raises:
        MediaError: If it cannot be used.
    """
    if case.path.suffix.lower() in (".wav", ".wave"):
        recording = read_wav(case.path)
        if recording.duration_s > config.max_duration_s:
            reason = f"it lasts {recording.duration_s:.1f} s, more than the {config.max_duration_s:g} s allowed"
            raise MediaError(case.path, reason)
        return Prepared(case, recording.pcm, recording.rate_hz, recording.duration_s, warnings=recording.warnings)
    media = decode_media(case.path, config)
    return Prepared(case, media.pcm, media.rate_hz, media.duration_s, media.frames, media.warnings)


def prepare(
    cases: Sequence[Case], config: MediaConfig, *, on_done: Callable[[int], None] = lambda done: None
) -> list[Prepared | Failed]:
    """Decode all inputs, a few at a time, in their order."""

    def one(case: Case) -> Prepared | Failed:
        try:
            entry = prepare_case(case, config)
            _ = entry.speech
            return entry
        except MediaError as error:
            return Failed(case, str(error), type(error).__name__)

    workers = max(1, min(4, len(os.sched_getaffinity(0)), len(cases)))
    entries: list[Prepared | Failed] = []
    with ThreadPoolExecutor(workers, thread_name_prefix="omni-duplex-bench media") as pool:
        for entry in pool.map(one, cases):
            entries.append(entry)
            on_done(len(entries))
    return entries
