"""A replier without a model: the same words for the same words. For tests, and for trying the engine out."""

from __future__ import annotations

from collections.abc import Iterator

from omni_serve.voice.parts import ReplyPiece, ReplyRequest, Stop


class RuleReplier:
    """Repeats what it heard in a fixed sentence, or counts when asked to count. One word is one token."""

    def __init__(self, max_tokens: int = 96) -> None:
        self._max_tokens = max_tokens

    def reply(self, request: ReplyRequest, stop: Stop) -> Iterator[ReplyPiece]:
        """See :class:`~omni_serve.voice.parts.Replier`."""
        heard = next((m.content.strip() for m in reversed(request.messages) if m.role == "user"), "")
        words = answer(heard).split()
        most = request.max_tokens or self._max_tokens
        tokens_in = sum(len(m.content.split()) for m in request.messages)
        given = 0
        for word in words[:most]:
            if stop():
                yield ReplyPiece("", "cancelled", tokens_in, given)
                return
            yield ReplyPiece(word if given == 0 else f" {word}")
            given += 1
        yield ReplyPiece("", "length" if len(words) > most else "stop", tokens_in, given)

    def close(self) -> None:
        """Nothing to let go."""


_COUNT = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
]


def answer(heard: str) -> str:
    """The reply to ``heard``."""
    if not heard:
        return "I did not hear anything."
    if "count" in heard.lower():
        return ", ".join(_COUNT) + "."
    return f"You said: {heard.rstrip('.!? ')}. That is what I heard."
