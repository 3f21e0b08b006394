"""The one home of the API's defaults and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """What an operator may set.

    Attributes:
        host: Address to bind; loopback unless told otherwise.
        port: Port to bind; 0 takes a free one.
        api_key: When set, every request but /health and the page needs ``Authorization: Bearer KEY`` (a browser sends
            it as the WebSocket subprotocol ``openai-insecure-api-key.KEY``). Never in a repr.
        allow_origins: Origins of web pages that may connect besides this host's own.
        ssl_certfile: PEM file of the certificate; with ``ssl_keyfile`` the server speaks https and wss.
        ssl_keyfile: PEM file of its key.
        max_body_bytes: Largest HTTP body.
        max_message_bytes: Largest WebSocket message.
        max_unsent_events: Events kept for a client that does not read (or is away); past it the session ends.
        session_limit_s: Longest session.
        idle_limit_s: Longest silence of a client: no event at all.
        resume_grace_s: How long a dropped session waits for its client to come back; 0 ends it at once.
        max_video_frames_per_append: Video frames in one append.
        max_video_bytes: Video frame bytes accepted in one session.
        request_limit_s: Longest HTTP request.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    api_key: str | None = field(default=None, repr=False)
    allow_origins: tuple[str, ...] = ()
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    max_body_bytes: int = 32 << 20
    max_message_bytes: int = 8 << 20
    max_unsent_events: int = 4096
    session_limit_s: float = 3600.0
    idle_limit_s: float = 300.0
    resume_grace_s: float = 10.0
    max_video_frames_per_append: int = 16
    max_video_bytes: int = 256 << 20
    request_limit_s: float = 600.0
