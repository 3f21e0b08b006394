"""Speech for tests: people's, from alsa-utils, and the embedded voice's own."""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from omni_serve.voice.weights import missing_modules

PEOPLE = Path("/usr/share/sounds/alsa")

Pcm = NDArray[np.int16]


def at_16k(pcm: Pcm, rate_hz: int) -> Pcm:
    soxr = pytest.importorskip("soxr", reason="needs soxr")
    return np.ascontiguousarray(soxr.resample(pcm, rate_hz, 16_000), np.int16)


@pytest.fixture(scope="session")
def needs_voice() -> None:
    """Skip where the ``voice`` extra is not installed; imports none of it."""
    if missing := missing_modules():
        pytest.skip(f"needs the voice extra ({', '.join(missing)})")


@pytest.fixture(scope="session")
def spoken() -> Callable[[str], Pcm]:
    """A recording of a person by name (``Front_Center``, say) at 16 kHz."""

    def load(name: str) -> Pcm:
        path = PEOPLE / f"{name}.wav"
        if not path.exists():
            pytest.skip(f"needs {path} (Debian: apt install alsa-utils)")
        with wave.open(str(path)) as file:
            pcm = np.frombuffer(file.readframes(file.getnframes()), np.int16)
            return at_16k(pcm[:: file.getnchannels()], file.getframerate())

    return load


@pytest.fixture(scope="session")
def voiced(needs_voice: None) -> Callable[[str], Pcm]:
    """A sentence spoken by the embedded voice, at 16 kHz."""
    from omni_serve.voice.speak import PiperSpeaker

    speaker = PiperSpeaker()

    def say(text: str) -> Pcm:
        return at_16k(speaker.speak(text, 1.0), 24_000)

    return say
