from __future__ import annotations

from omni_serve.contract import Message
from omni_serve.voice.parts import ReplyRequest
from omni_serve.voice.rules import RuleReplier, answer


def say(text: str, **more: int) -> tuple[str, str | None, int]:
    pieces = list(RuleReplier().reply(ReplyRequest((Message("user", text),), **more), lambda: False))
    return "".join(p.text for p in pieces), pieces[-1].finish, pieces[-1].tokens_out


def test_the_same_words_get_the_same_answer() -> None:
    assert say("Hello there.") == ("You said: Hello there. That is what I heard.", "stop", 9)
    assert answer("") == "I did not hear anything."
    assert say("Please count.")[0].startswith("one, two, three")


def test_a_limit_and_a_stop_are_kept() -> None:
    assert say("Hello there.", max_tokens=2) == ("You said:", "length", 2)
    stops = iter([False, True])
    pieces = list(RuleReplier().reply(ReplyRequest((Message("user", "Hi"),)), lambda: next(stops)))
    assert [p.text for p in pieces] == ["You", ""]
    assert pieces[-1].finish == "cancelled"
