"""/v1/chat/completions, whole and streamed."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from omni_serve.api.http.body import INT64_HIGH, INT64_LOW, read_json, while_connected
from omni_serve.api.http.errors import answer_for
from omni_serve.api.http.models import chosen
from omni_serve.api.realtime.fields import Fields, WireError
from omni_serve.api.settings import ApiSettings
from omni_serve.contract import ChatPiece, ChatRequest, Engine, Message, Role
from omni_serve.errors import ServeError

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


async def chat(request: Request, engine: Engine, settings: ApiSettings) -> Response:
    """Answer a conversation."""
    body = await read_json(request, settings)
    asked = read_chat(body)
    model = chosen(engine, asked.model, ("text", "voice"))
    head = {"id": f"chatcmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": model}
    pieces = engine.chat(asked)
    if body.flag("stream"):
        usage = body.object("stream_options").flag("include_usage") or False
        first = await while_connected(request, anext(pieces), settings.request_limit_s)
        return StreamingResponse(_stream(first, pieces, head, usage), media_type="text/event-stream")
    text, last = await while_connected(request, _whole(pieces), settings.request_limit_s)
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, "refusal": None},
        "finish_reason": last.finish_reason or "stop",
        "logprobs": None,
    }
    return JSONResponse(head | {"object": "chat.completion", "choices": [choice], "usage": _usage(last)})


def read_chat(body: Fields) -> ChatRequest:
    """The request, every field bounded. Raises WireError naming the field."""
    if (n := body.integer("n", low=1, high=128)) not in (None, 1):
        raise WireError(f"n is {n}; this server gives one choice", param="n")
    if body.array("tools"):
        raise WireError("this server calls no tools; leave tools empty", param="tools")
    given = body.array("messages", required=True)
    if not given:
        raise WireError("messages is empty; send at least one", param="messages")
    bound = body.integer("max_completion_tokens", low=1, high=INT64_HIGH)
    stop = body.get("stop")
    stops = [stop] if isinstance(stop, str) else body.array("stop")
    if len(stops) > 16 or any(not isinstance(s, str) or not s for s in stops):
        raise WireError("stop must be text or up to 16 non-empty texts", param="stop")
    return ChatRequest(
        messages=tuple(_message(raw, f"messages[{index}]") for index, raw in enumerate(given)),
        model=body.text("model"),
        max_tokens=bound if bound is not None else body.integer("max_tokens", low=1, high=INT64_HIGH),
        temperature=body.number("temperature", low=0.0, high=2.0),
        top_p=body.number("top_p", low=0.0, high=1.0),
        seed=body.integer("seed", low=INT64_LOW, high=INT64_HIGH),
        stop=tuple(stops),
    )


def _message(raw: Any, where: str) -> Message:
    if not isinstance(raw, Mapping):
        raise WireError(f"{where} must be an object", param=where)
    fields = Fields(raw, where)
    role = fields.text("role", required=True) or ""
    if role not in _ROLES:
        raise WireError(f"{where}.role is {role!r}; it must be one of {', '.join(_ROLES)}", param=f"{where}.role")
    content = raw.get("content")
    if isinstance(content, list):
        texts = []
        for index, part in enumerate(content):
            place = f"{where}.content[{index}]"
            if not isinstance(part, Mapping) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise WireError(f"{place} must be a text part; this model reads text only", param=place)
            texts.append(part["text"])
        return Message(_ROLES[role], "".join(texts))
    return Message(_ROLES[role], fields.text("content", required=True) or "")


async def _whole(pieces: AsyncIterator[ChatPiece]) -> tuple[str, ChatPiece]:
    texts: list[str] = []
    last = ChatPiece("", "stop")
    async for piece in pieces:
        texts.append(piece.text)
        last = piece
    return "".join(texts), last


def _usage(last: ChatPiece) -> dict[str, int]:
    return {
        "prompt_tokens": last.tokens_in,
        "completion_tokens": last.tokens_out,
        "total_tokens": last.tokens_in + last.tokens_out,
    }


async def _stream(
    first: ChatPiece, pieces: AsyncIterator[ChatPiece], head: dict[str, Any], with_usage: bool
) -> AsyncIterator[str]:
    """Server-sent events; a fault after the first piece is an event of its own, then the end."""
    base = head | {"object": "chat.completion.chunk"}

    def chunk(delta: dict[str, Any], finish: str | None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return f"data: {json.dumps(base | {'choices': [choice]})}\n\n"

    last = first
    try:
        yield chunk({"role": "assistant", "content": first.text}, None)
        try:
            async for piece in pieces:
                last = piece
                if piece.text:
                    yield chunk({"content": piece.text}, None)
        except ServeError as error:
            yield f"data: {bytes(answer_for(error).body).decode()}\n\n"
            return
        yield chunk({}, last.finish_reason or "stop")
        if with_usage:
            yield f"data: {json.dumps(base | {'choices': [], 'usage': _usage(last)})}\n\n"
        yield "data: [DONE]\n\n"
    finally:
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()
