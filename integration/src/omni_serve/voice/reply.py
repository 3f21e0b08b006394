"""Replies with SmolLM2-135M-Instruct through llama.cpp (xllamacpp).

Its answers are fluent and often wrong: it is here because it is small enough to answer at once on one core.
"""

from __future__ import annotations

import os
import queue
import secrets
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from omni_serve.contract import Message
from omni_serve.errors import InvalidRequestError, ServeError
from omni_serve.voice.config import ReplyConfig
from omni_serve.voice.parts import ReplyPiece, ReplyRequest, Stop
from omni_serve.voice.weights import SMOLLM2, verified

_SEED_MASK = (1 << 32) - 2
_HEADROOM = 8


class ReplyFailedError(ServeError):
    """llama.cpp refused or lost a request it should have taken."""


@dataclass(frozen=True, slots=True)
class _End:
    """What ends the hand-over between llama.cpp's thread and ours."""

    error: BaseException | None = None


class LlamaReplier:
    """llama.cpp's own continuous batching over ``width`` slots on ``threads`` threads.

    Its server opens a loopback port that we do not use; it is shut with a key that nobody is told.
    """

    def __init__(self, config: ReplyConfig | None = None) -> None:
        import xllamacpp  # type: ignore[import-untyped]

        self._config = config = config or ReplyConfig()
        params = xllamacpp.CommonParams()
        params.model.path = os.fspath(verified(SMOLLM2))
        params.n_parallel = config.width
        params.n_ctx = config.context_tokens * config.width
        # Half the memory of 16-bit floats, which at four conversations of 2048 tokens are 180 MB.
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_Q8_0
        params.cpuparams.n_threads = config.threads
        params.cpuparams_batch.n_threads = config.threads
        params.n_gpu_layers = 0
        params.cache_ram_mib = 0
        params.n_threads_http = 1
        params.api_keys = [secrets.token_hex(32)]
        params.endpoint_slots = False
        params.ui = False
        params.verbosity = 0
        params.warmup = False
        self._server: Any = xllamacpp.Server(params)
        self._slots = threading.BoundedSemaphore(config.width)
        # The first prompt pays for reading the weights; the system message's tokens stay cached.
        first = ReplyRequest(
            (Message("system", config.instructions), Message("user", "Hello.")), max_tokens=1, temperature=0.0
        )
        for _ in self.reply(first, lambda: False):
            pass

    def reply(self, request: ReplyRequest, stop: Stop) -> Iterator[ReplyPiece]:
        """See :class:`~omni_serve.voice.parts.Replier`. The history's oldest turns go when it outgrows the context."""
        messages = list(request.messages)
        while True:
            try:
                yield from self._attempt(request, messages, stop)
            except _ContextFullError:
                messages = shorten(messages)
            else:
                return

    def _attempt(self, request: ReplyRequest, messages: list[Message], stop: Stop) -> Iterator[ReplyPiece]:
        config = self._config
        body = self._body(request, messages)
        pieces: queue.SimpleQueue[Mapping[str, Any] | _End] = queue.SimpleQueue()
        left = threading.Event()

        def take(chunk: Mapping[str, Any] | list[Mapping[str, Any]]) -> bool:
            for one in chunk if isinstance(chunk, list) else [chunk]:
                pieces.put(one)
            return left.is_set() or stop()

        def run() -> None:
            try:
                with self._slots:
                    if not (left.is_set() or stop()):
                        self._server.handle_chat_completions(body, take)
            except Exception as error:  # noqa: BLE001 - reported to the reader below, whatever llama.cpp raised
                pieces.put(_End(error))
            else:
                pieces.put(_End())

        worker = threading.Thread(target=run, name="llama-request", daemon=True)
        worker.start()
        finish: Literal["stop", "length", "cancelled"] = "cancelled"
        tokens_in = tokens_out = 0
        try:
            while not isinstance(piece := pieces.get(), _End):
                if "error" in piece:
                    _raise(piece["error"], config.context_tokens, len(messages))
                for choice in piece.get("choices", ()):
                    if text := choice["delta"].get("content"):
                        yield ReplyPiece(text)
                    if choice.get("finish_reason"):
                        finish = "length" if choice["finish_reason"] == "length" else "stop"
                if usage := piece.get("usage"):
                    tokens_in, tokens_out = usage["prompt_tokens"], usage["completion_tokens"]
            if piece.error is not None:
                raise ReplyFailedError(f"the language model failed: {piece.error}") from piece.error
        finally:
            left.set()
            worker.join()
        yield ReplyPiece("", finish, tokens_in, tokens_out)

    def _body(self, request: ReplyRequest, messages: list[Message]) -> dict[str, Any]:
        config = self._config
        body: dict[str, Any] = {
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            "max_tokens": min(request.max_tokens or config.max_tokens, config.context_tokens - _HEADROOM),
            "temperature": config.temperature if request.temperature is None else request.temperature,
            "repeat_penalty": config.repeat_penalty,
            "stream": True,
            "stream_options": {"include_usage": True},
            "cache_prompt": True,
        }
        if request.top_p is not None:
            body["top_p"] = request.top_p
        if request.seed is not None:
            # llama.cpp's seeds are 32 bits wide, its all-ones value means "random".
            body["seed"] = request.seed % _SEED_MASK
        if request.stop:
            body["stop"] = list(request.stop)
        return body

    def close(self) -> None:
        """Stop the server and let the weights go. Idempotent."""
        self._server = None


class _ContextFullError(Exception):
    """The conversation does not fit; the caller shortens it."""


def shorten(messages: list[Message]) -> list[Message]:
    """The conversation without its oldest turn; the system message and the last message stay.

    Raises InvalidRequestError when nothing is left to drop.
    """
    for index, message in enumerate(messages[:-1]):
        if message.role != "system":
            return [*messages[:index], *messages[index + 1 :]]
    raise InvalidRequestError(
        "the last message alone is longer than the model's context; send a shorter one",
        field="messages",
        code="context_length_exceeded",
    )


def _raise(error: Mapping[str, Any], context_tokens: int, messages: int) -> None:
    """Turn llama.cpp's error object into one of ours."""
    if error.get("type") == "exceed_context_size_error":
        raise _ContextFullError
    if error.get("code") == 400:
        raise InvalidRequestError(f"the language model refused the request: {error.get('message')}", field="messages")
    raise ReplyFailedError(f"the language model failed: {error.get('message')}")
