from __future__ import annotations

import pytest

from omni_serve.voice.backchannel import is_backchannel


@pytest.mark.parametrize("text", ["", "Mhm.", "Mm-hmm.", "Uh-huh", "Yeah, okay.", "Oh, I see."[:2], "Right.", "Hmm..."])
def test_listening_noises_ask_for_nothing(text: str) -> None:
    assert is_backchannel(text)


@pytest.mark.parametrize("text", ["Stop.", "Wait!", "No.", "Yeah but why?", "Okay okay okay okay", "What?"])
def test_everything_else_asks_for_the_floor(text: str) -> None:
    assert not is_backchannel(text)
