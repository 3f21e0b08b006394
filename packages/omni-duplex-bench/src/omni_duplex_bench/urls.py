"""The address of a realtime session: scheme, and query keys that replace what the caller's URL already had."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from omni_duplex_bench.errors import UsageError

_SCHEMES = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}


def realtime_url(
    url: str,
    *,
    model: str | None = None,
    session_id: str | None = None,
    autostart: bool | None = None,
    duplex: bool | None = None,
    native_duplex: bool | None = None,
    resume_token: str | None = None,
) -> str:
    """Turn ``url`` into the WebSocket address to open.

    http becomes ws and https wss. Each key that is not None replaces every occurrence in the caller's query; other
    keys stay in order. ``native_duplex`` is the flag of the older vLLM-Omni dialect.

    Raises:
        UsageError: If the scheme is another one or there is no host.
    """
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme.lower())
    if scheme is None or not parts.netloc:
        raise UsageError(f"{redact_url(url)!r} is no realtime address: use ws://, wss://, http:// or https://")
    wanted = {
        "model": model,
        "session_id": session_id,
        "autostart": _flag(autostart),
        "duplex": _flag(duplex),
        "native_duplex": _flag(native_duplex),
        "resume_token": resume_token,
    }
    new = {key: value for key, value in wanted.items() if value is not None}
    kept = [(key, value) for key, value in parse_qsl(parts.query, keep_blank_values=True) if key not in new]
    return urlunsplit((scheme, parts.netloc, parts.path or "/v1/realtime", urlencode([*kept, *new.items()]), ""))


def redact_url(url: str) -> str:
    """The address without user, password and query, fit for messages and results."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def _flag(value: bool | None) -> str | None:
    return None if value is None else "1" if value else "0"
