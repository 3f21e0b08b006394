"""Every error this package raises, as one tree. Each carries fields and subclasses the builtin a caller would catch."""

from __future__ import annotations

import os


class DuplexBenchError(Exception):
    """Root of the tree: catch this to catch everything the package raises on purpose."""


class UsageError(DuplexBenchError, ValueError):
    """An option or argument that cannot be honoured, or two that contradict each other."""


class ConnectError(DuplexBenchError, ConnectionError):
    """The WebSocket could not be opened. ``url`` holds no credentials; ``reason`` is one clause."""

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(f"cannot connect to {url}: {reason}")
        self.url = url
        self.reason = reason


class SessionEndedError(DuplexBenchError, ConnectionError):
    """The session is over: closed by either side, expired, or its reader failed (then ``__cause__`` is set)."""

    def __init__(self, reason: str, *, code: int | None = None) -> None:
        super().__init__(f"the session ended: {reason}" + (f" (WebSocket code {code})" if code is not None else ""))
        self.reason = reason
        self.code = code


class ProtocolError(DuplexBenchError, ValueError):
    """The server broke the protocol; ``event_type``, ``event_id`` and ``response_id`` say where, when known."""

    def __init__(
        self,
        message: str,
        *,
        event_type: str | None = None,
        event_id: str | None = None,
        response_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.event_type = event_type
        self.event_id = event_id
        self.response_id = response_id


class MalformedEventError(ProtocolError):
    """A message that is no JSON object, has no type, or whose known fields have the wrong shape."""


class DialectMismatchError(ProtocolError):
    """The server speaks the other set of event names than the one the client was told to speak."""

    def __init__(self, expected: str, met: str, event_type: str) -> None:
        super().__init__(
            f"this client speaks the {expected} event names, the server answered with the {met} ones ({event_type});"
            f" use dialect {met!r} or 'auto'",
            event_type=event_type,
        )
        self.expected = expected
        self.met = met


class ServerError(DuplexBenchError, RuntimeError):
    """The server refused a client event. ``command`` is the type of that event, when it said which."""

    def __init__(self, message: str, *, code: str | None, client_event_id: str | None, command: str | None) -> None:
        where = f" (answering {command})" if command else ""
        super().__init__(f"server error{f' {code}' if code else ''}: {message}{where}")
        self.message = message
        self.code = code
        self.client_event_id = client_event_id
        self.command = command


class UnsupportedByServerError(DuplexBenchError, NotImplementedError):
    """A field that the server never announced it understands."""


class NoDecisionError(DuplexBenchError, TimeoutError):
    """Nothing decided the session within its bound."""


class AudioFormatError(DuplexBenchError, ValueError):
    """Samples of an unexpected rate, width, layout or encoding."""


class MediaError(DuplexBenchError, ValueError):
    """A media file that cannot be used; ``path`` and ``reason`` say which and why."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(f"{os.fspath(path)}: {reason}")
        self.path = os.fspath(path)
        self.reason = reason


class MediaTimeoutError(MediaError, TimeoutError):
    """The decoder did not finish within its deadline and was killed."""


class DatasetError(DuplexBenchError, ValueError):
    """A dataset without the layout its name promises."""


class UnsafeArchiveError(DatasetError):
    """An archive member that would leave the folder or is no plain file; ``member`` names it."""

    def __init__(self, archive: str | os.PathLike[str], member: str, reason: str) -> None:
        super().__init__(f"{os.fspath(archive)}: member {member!r} refused: {reason}")
        self.archive = os.fspath(archive)
        self.member = member
        self.reason = reason


class ArtifactError(DuplexBenchError, OSError):
    """A result file could not be published; the files of its set are absent."""
