from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from omni_serve.contract import Message
from omni_serve.errors import InvalidRequestError
from omni_serve.voice.config import ReplyConfig
from omni_serve.voice.parts import ReplyRequest
from omni_serve.voice.reply import LlamaReplier, shorten

ITALY = (Message("system", ReplyConfig().instructions), Message("user", "What is the capital of Italy?"))


@pytest.fixture(scope="module")
def smollm(needs_voice: None) -> Iterator[LlamaReplier]:
    part = LlamaReplier(ReplyConfig(width=2, context_tokens=512))
    yield part
    part.close()


def test_it_answers_in_pieces_and_counts(smollm: LlamaReplier) -> None:
    pieces = list(smollm.reply(ReplyRequest(ITALY, max_tokens=40, temperature=0.0), lambda: False))
    text = "".join(p.text for p in pieces)
    assert "Rome" in text
    assert pieces[-1].finish == "stop"
    assert pieces[-1].tokens_in > 20
    assert pieces[-1].tokens_out >= len(pieces) - 2


def test_the_same_seed_gives_the_same_words(smollm: LlamaReplier) -> None:
    def say() -> str:
        request = ReplyRequest(ITALY, max_tokens=12, temperature=1.0, seed=-(2**63))
        return "".join(p.text for p in smollm.reply(request, lambda: False))

    assert say() == say()


def test_a_limit_is_named(smollm: LlamaReplier) -> None:
    pieces = list(smollm.reply(ReplyRequest(ITALY, max_tokens=2), lambda: False))
    assert (pieces[-1].finish, pieces[-1].tokens_out) == ("length", 2)


def test_a_stop_ends_it_between_tokens(smollm: LlamaReplier) -> None:
    stop = threading.Event()
    request = ReplyRequest((Message("user", "Tell a long story."),), max_tokens=400)
    count = 0
    for piece in smollm.reply(request, stop.is_set):
        count += bool(piece.text)
        if count == 3:
            stop.set()
    assert piece.finish == "cancelled"
    assert count < 50


def test_two_conversations_are_answered_side_by_side(smollm: LlamaReplier) -> None:
    first = smollm.reply(ReplyRequest(ITALY, max_tokens=30), lambda: False)
    second = smollm.reply(ReplyRequest(ITALY, max_tokens=30), lambda: False)
    assert next(first).text
    assert next(second).text
    assert list(first)[-1].finish
    assert list(second)[-1].finish


def test_a_long_history_loses_its_oldest_turns(smollm: LlamaReplier) -> None:
    history = tuple(Message("user", "word " * 60) for _ in range(12))
    pieces = list(smollm.reply(ReplyRequest((*history, ITALY[1]), max_tokens=8), lambda: False))
    assert pieces[-1].tokens_out > 0


def test_a_message_longer_than_the_context_is_the_clients_mistake(smollm: LlamaReplier) -> None:
    with pytest.raises(InvalidRequestError, match="longer than the model's context"):
        list(smollm.reply(ReplyRequest((Message("user", "word " * 3000),)), lambda: False))


def test_shorten_keeps_the_system_message_and_the_last() -> None:
    a, b, c = Message("system", "s"), Message("user", "old"), Message("user", "new")
    assert shorten([a, b, c]) == [a, c]
    with pytest.raises(InvalidRequestError):
        shorten([a, c])


def test_the_servers_own_port_is_shut(smollm: LlamaReplier) -> None:
    import urllib.error
    import urllib.request

    address = smollm._server.listening_address
    request = urllib.request.Request(f"{address}/v1/chat/completions", data=b'{"messages":[]}')
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request)
