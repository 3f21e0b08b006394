"""Which words tell a speaker to go on, and which ask for the floor.

Backchannels ("mhm", "right") are not turns: V. Yngve, "On getting a word in edgewise", 1970.
"""

from __future__ import annotations

import re

_BACKCHANNELS = frozenset(
    [
        "ah",
        "aha",
        "alright",
        "cool",
        "exactly",
        "fine",
        "good",
        "great",
        "hm",
        "hmm",
        "huh",
        "mhm",
        "mm",
        "mmhmm",
        "mmm",
        "nice",
        "oh",
        "ok",
        "okay",
        "really",
        "right",
        "see",
        "sure",
        "true",
        "uh",
        "uhhuh",
        "uhuh",
        "um",
        "wow",
        "ya",
        "yeah",
        "yep",
        "yes",
        "yup",
    ]
)
_WORD = re.compile(r"[a-z]+(?:['’][a-z]+)?")
_MOST_WORDS = 3


def is_backchannel(text: str) -> bool:
    """Whether a short utterance during a reply only says "go on": nothing but listening noises, three at most."""
    words = _WORD.findall(text.lower().replace("-", ""))
    return len(words) <= _MOST_WORDS and all(word in _BACKCHANNELS for word in words)
