"""Everything omni-serve raises on purpose, as one small tree.

Each error carries the fields its handler needs (the request's field, the stage, how long to wait), so that the API maps
a type to a status once and never reads a message to decide.
"""

from __future__ import annotations


class ServeError(Exception):
    """Base of the tree."""


class InvalidRequestError(ServeError, ValueError):
    """A request that asks for what cannot be: HTTP 400, a realtime ``error`` event.

    Args:
        message: What is wrong, with the value, and what to send instead.
        field: The request's field as the client wrote it, or None.
        code: A stable machine-readable word, ``invalid_value`` unless a closer one exists.
    """

    def __init__(self, message: str, *, field: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.field = field
        self.code = code


class UnsupportedError(ServeError):
    """A well-formed request for something this deployment has no stage or backend for: HTTP 501 or 404."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class OverloadedError(ServeError):
    """Admission refused: HTTP 429 with Retry-After.

    Args:
        message: Which limit is full, and its size.
        retry_after_s: A whole number of seconds, at least 1.
    """

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StageUnavailableError(ServeError):
    """The stage that owns the request died or has no live replica: HTTP 503, or the reply's failure."""

    def __init__(self, message: str, *, stage: str) -> None:
        super().__init__(message)
        self.stage = stage


class DeadlineError(ServeError, TimeoutError):
    """The request's deadline passed before its stage answered: HTTP 504."""


class ActiveReplyError(InvalidRequestError):
    """A reply was asked for while one is active; the session goes on."""

    def __init__(self, reply_id: str) -> None:
        super().__init__(
            f"reply {reply_id} is still active; cancel it or wait for its end",
            code="conversation_already_has_active_response",
        )
        self.reply_id = reply_id


class StartupError(ServeError):
    """The deployment did not come up; says which stage, why, and what to do."""


class DeployError(ServeError, ValueError):
    """A deploy file that cannot be served: path, line and column (1-based), and what to write instead."""

    def __init__(self, message: str, *, path: str, line: int | None = None, column: int | None = None) -> None:
        where = path if line is None else f"{path}:{line}:{column or 1}"
        super().__init__(f"{where}: {message}")
        self.path = path
        self.line = line
        self.column = column
