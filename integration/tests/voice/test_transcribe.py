from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from omni_serve.voice.transcribe import WhisperTranscriber, windows

Pcm = NDArray[np.int16]


@pytest.fixture(scope="module")
def whisper(needs_voice: None) -> Iterator[WhisperTranscriber]:
    part = WhisperTranscriber()
    yield part
    part.close()


def words(part: WhisperTranscriber, pcm: Pcm) -> list[str]:
    text = " ".join(s.text for s in part.transcribe(pcm, lambda: False))
    return re.findall(r"[a-z']+", text.lower())


@pytest.mark.parametrize("name", ["Front_Center", "Rear_Left", "Side_Right"])
def test_a_person_is_understood(whisper: WhisperTranscriber, spoken: Callable[[str], Pcm], name: str) -> None:
    assert words(whisper, spoken(name)) == name.lower().split("_")


def test_the_voice_understands_itself(whisper: WhisperTranscriber, voiced: Callable[[str], Pcm]) -> None:
    heard = words(whisper, voiced("What is the capital of Italy?"))
    assert heard == ["what", "is", "the", "capital", "of", "italy"]


def test_silence_and_next_to_nothing_have_no_words(whisper: WhisperTranscriber) -> None:
    assert whisper.transcribe(np.zeros(0, np.int16), lambda: False) == ()
    assert whisper.transcribe(np.zeros(1000, np.int16), lambda: False) == ()
    assert words(whisper, np.zeros(32_000, np.int16)) == []


def test_a_long_recording_is_transcribed_in_windows(whisper: WhisperTranscriber, spoken: Callable[[str], Pcm]) -> None:
    front, left = spoken("Front_Center"), spoken("Rear_Left")
    gap = np.zeros(26 * 16_000, np.int16)
    segments = whisper.transcribe(np.concatenate([front, gap, left]), lambda: False)
    text = " ".join(s.text for s in segments).lower()
    assert "front" in text
    assert "left" in text
    assert len(segments) >= 2
    assert all(a.end_s <= b.start_s for a, b in itertools.pairwise(segments))


def test_stop_ends_between_windows(whisper: WhisperTranscriber, spoken: Callable[[str], Pcm]) -> None:
    assert whisper.transcribe(spoken("Front_Center"), lambda: True) == ()


def test_windows_cover_everything_and_cut_where_it_is_quiet() -> None:
    rng = np.random.default_rng(0)
    wave = rng.normal(0, 0.1, 160_000).astype(np.float32)
    wave[56_000:58_000] = 0.0
    pieces = windows(wave, 64_000)
    assert pieces[0][1] in range(56_000, 58_000)
    assert [start for start, _ in pieces[1:]] == [end for _, end in pieces[:-1]]
    assert pieces[-1][1] == wave.size
    assert all(end - start <= 64_000 for start, end in pieces)
