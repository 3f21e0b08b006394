"""A message looked at where it lies, without a copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from omni_shmring.errors import ClosedError


class Lease:
    """A read-only view of one message in shared memory; holds its space until closed.

    numpy arrays in it refuse to be written to. torch knows no read-only tensor: do not write to one. Nothing taken
    from :attr:`payload` may be used after the lease has closed: the producer writes the next message there. The
    message counts as taken when the lease closes; when this process dies before, the next receiver gets it.
    """

    __slots__ = ("_end", "_payload", "nbytes")

    def __init__(self, payload: Any, nbytes: int, end: Callable[[], None]) -> None:
        self._payload = payload
        self._end: Callable[[], None] | None = end
        self.nbytes = nbytes

    @property
    def payload(self) -> Any:
        """The message. Raises ClosedError after close."""
        if self._end is None:
            raise ClosedError("the lease has been closed; its memory is the producer's again")
        return self._payload

    def close(self) -> None:
        """Give the space back. May be called again."""
        end, self._end = self._end, None
        self._payload = None
        if end is not None:
            end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
