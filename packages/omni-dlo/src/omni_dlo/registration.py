"""Registers a lease's mapping with the device, so that copies run straight from it: all of it or nothing.

The runtime behind it is a protocol; :mod:`omni_dlo.cuda_runtime` is the real one.
"""

from __future__ import annotations

import mmap
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from omni_dlo.errors import RegistrationError
from omni_dlo.lease import Region

__all__ = ["PageRange", "Registration", "RegistrationRuntime", "page_ranges", "register_mapping"]


class RegistrationRuntime(Protocol):
    """The device's way to page-lock memory that exists."""

    def can_register_read_only(self) -> bool:
        """Whether read-only mappings can be registered."""

    def register(self, address: int, nbytes: int) -> None:
        """Page-lock ``nbytes`` read-only from ``address``; raises ``OSError`` with the runtime's reason."""

    def unregister(self, address: int) -> None:
        """Undo :meth:`register`; raises ``OSError`` with the runtime's reason."""


@dataclass(frozen=True)
class PageRange:
    """Whole pages of one file's mapping."""

    file: str
    address: int
    nbytes: int


def page_ranges(regions: Sequence[Region], page_bytes: int = mmap.PAGESIZE) -> tuple[PageRange, ...]:
    """``regions`` widened to whole pages, and merged where they touch within one file.

    A page may be registered only once, so ranges of one file never overlap in the result.
    """
    spans: dict[str, list[tuple[int, int]]] = {}
    for file, address, nbytes in regions:
        if nbytes > 0:
            start = address // page_bytes * page_bytes
            end = -(-(address + nbytes) // page_bytes) * page_bytes
            spans.setdefault(str(file), []).append((start, end))
    merged: list[PageRange] = []
    for file, found in spans.items():
        start, end = 0, 0
        for first, last in sorted(found):
            if first <= end and end > start:
                end = max(end, last)
                continue
            if end > start:
                merged.append(PageRange(file, start, end - start))
            start, end = first, last
        merged.append(PageRange(file, start, end - start))
    return tuple(merged)


class Registration:
    """Ranges that are registered now."""

    def __init__(self, runtime: RegistrationRuntime, ranges: Sequence[PageRange]) -> None:
        self._runtime = runtime
        self._ranges = list(ranges)
        self.nbytes = sum(item.nbytes for item in ranges)

    def close(self) -> None:
        """Unregister everything, last first. May be called again.

        Raises:
            RegistrationError: ``rollback``, when a range stays registered: its mapping must then stay, too.
        """
        left = []
        while self._ranges:
            item = self._ranges.pop()
            try:
                self._runtime.unregister(item.address)
            except OSError as error:
                left.append(f"{item.file} at {item.address:#x}: {error}")
        if left:
            raise RegistrationError("rollback", f"still registered, so the mapping stays open: {'; '.join(left)}")


def register_mapping(
    regions: Sequence[Region], runtime: RegistrationRuntime, *, limit_bytes: int, timeout_s: float
) -> Registration:
    """Register all of ``regions``.

    Raises:
        RegistrationError: ``budget`` (checked before the runtime is asked anything), ``capability``, ``failed``
            (everything was undone), ``rollback`` (something could not be undone), or ``timeout`` (the worker undoes
            what it has once the runtime answers; until then the mapping must stay).
    """
    ranges = page_ranges(regions)
    total = sum(item.nbytes for item in ranges)
    if total > limit_bytes:
        raise RegistrationError("budget", f"{total} bytes of mapping, registration_limit_bytes is {limit_bytes}")
    if not runtime.can_register_read_only():
        raise RegistrationError("capability", "the device cannot register read-only host memory")
    attempt = _Attempt(runtime, ranges)
    # A daemon, because nothing can interrupt a runtime that hangs inside its driver.
    worker = threading.Thread(target=attempt.run, name="omni-dlo-register", daemon=True)
    worker.start()
    worker.join(timeout_s)
    with attempt.lock:
        if not attempt.finished:
            attempt.abandoned = True
            raise RegistrationError("timeout", f"not done after {timeout_s:g} s")
    worker.join()
    if attempt.error is not None:
        raise attempt.error
    return Registration(runtime, ranges)


class _Attempt:
    def __init__(self, runtime: RegistrationRuntime, ranges: Sequence[PageRange]) -> None:
        self._runtime = runtime
        self._ranges = ranges
        self.lock = threading.Lock()
        self.finished = False
        self.abandoned = False
        self.error: RegistrationError | None = None

    def run(self) -> None:
        done: list[PageRange] = []
        for item in self._ranges:
            try:
                self._runtime.register(item.address, item.nbytes)
            except OSError as error:
                self.error = self._undo(done, f"{item.file}: {error}")
                break
            done.append(item)
            if self.abandoned:
                break
        with self.lock:
            self.finished = True
            if not self.abandoned:
                return
        if self.error is None:
            undone = self._undo(done, "took too long")
            if undone.reason == "rollback":
                warnings.warn(str(undone), RuntimeWarning, stacklevel=2)

    def _undo(self, done: list[PageRange], why: str) -> RegistrationError:
        try:
            Registration(self._runtime, done).close()
        except RegistrationError as error:
            return error
        return RegistrationError("failed", why)
