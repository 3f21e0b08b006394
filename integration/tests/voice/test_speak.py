from __future__ import annotations

import numpy as np
import pytest

from omni_serve.errors import InvalidRequestError
from omni_serve.voice.speak import PiperSpeaker, phoneme_ids


def test_phoneme_ids_are_framed_as_piper_does() -> None:
    table = {"a": [14], "e": [18], "\u0303": [99], "ç": [1]}
    assert phoneme_ids("aẽx", table) == [1, 0, 14, 0, 18, 0, 99, 0, 2]


@pytest.fixture(scope="module")
def joe(needs_voice: None) -> PiperSpeaker:
    return PiperSpeaker()


def test_a_clause_becomes_audible_speech(joe: PiperSpeaker) -> None:
    pcm = joe.speak("The moon is far away.", 1.0)
    assert pcm.dtype == np.int16
    assert 0.8 < pcm.size / 24_000 < 3.0
    assert np.abs(pcm.astype(np.int32)).max() > 3000


def test_faster_is_shorter(joe: PiperSpeaker) -> None:
    assert joe.speak("The moon is far away.", 2.0).size < 0.75 * joe.speak("The moon is far away.", 1.0).size
    with pytest.raises(InvalidRequestError, match="speed is 9"):
        joe.speak("Hello.", 9.0)


@pytest.mark.parametrize("text", ["", "...", "😀", "—", "\n"])
def test_what_cannot_be_pronounced_is_silence(joe: PiperSpeaker, text: str) -> None:
    assert joe.speak(text, 1.0).size == 0


def test_long_text_is_spoken_whole(joe: PiperSpeaker) -> None:
    assert joe.speak("one two three four five six seven eight nine ten " * 8, 1.0).size / 24_000 > 15
