"""What every test of this repository gets, from the standard library and pytest alone.

A package's tests run in a venv that holds only that package and pytest, so nothing here is a plugin to install:
a time limit per test, coroutine tests, and the guard that fails the session when a test leaves a process, a thread,
a file in /dev/shm or a temporary folder behind.
"""

from __future__ import annotations

import asyncio
import faulthandler
import inspect
import multiprocessing
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

LIMIT_S = 120.0
"""A test's own time limit where it has no ``limit_s`` marker: a hang becomes a failure with a traceback."""

SETTLE_S = 5.0
"""How long the guard waits for what is already ending (an exiting child, a joining thread)."""

SHM = pathlib.Path("/dev/shm")


class TimeLimitError(Exception):
    """Raised inside a test that ran past its limit."""


def pytest_configure(config: pytest.Config) -> None:
    """Make the checkout's examples and tests see one temporary root that the guard can look into."""
    faulthandler.enable()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_OFFLINE", "1")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run ``async def`` tests in an event loop of their own."""
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(function(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """End a test that runs past its limit, with the stacks of all threads on stderr."""
    marker = item.get_closest_marker("limit_s")
    limit_s = float(marker.args[0]) if marker else LIMIT_S

    def expire(signum: int, frame: FrameType | None) -> None:
        faulthandler.dump_traceback(file=sys.__stderr__, all_threads=True)
        raise TimeLimitError(f"{item.nodeid} ran past its limit of {limit_s:g} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _descendants() -> dict[int, str]:
    """Processes below this one that are not zombies already being reaped: pid to command line."""
    parents: dict[int, int] = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(entry.name)] = int(fields[1])
    found: dict[int, str] = {}
    for pid in parents:
        walk = pid
        while walk in parents and walk != os.getpid():
            walk = parents[walk]
        if walk != os.getpid() or pid == os.getpid():
            continue
        try:
            command = (pathlib.Path("/proc") / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ")
        except OSError:
            continue
        # The resource tracker of multiprocessing lives as long as its parent by design.
        if b"resource_tracker" not in command:
            found[pid] = command.decode(errors="replace")[:200]
    return found


def _threads() -> dict[int, str]:
    return {t.ident or 0: t.name for t in threading.enumerate() if t.is_alive() and t is not threading.main_thread()}


def _entries(folder: pathlib.Path) -> set[str]:
    return set(os.listdir(folder)) if folder.is_dir() else set()


def _leftovers(before: dict[str, Any]) -> list[str]:
    """What exists now and did not before, in words."""
    multiprocessing.active_children()
    found = [f"process {pid}: {cmd}" for pid, cmd in _descendants().items() if pid not in before["processes"]]
    found += [f"thread {name}" for ident, name in _threads().items() if ident not in before["threads"]]
    found += [f"/dev/shm/{name}" for name in sorted(_entries(SHM) - before["shm"])]
    found += [f"temporary {name}" for name in sorted(_entries(before["tmp"]) - before["tmp_entries"])]
    return found


@pytest.fixture(scope="module", autouse=True)
def nothing_left_behind(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail the module whose tests leave something running or lying about, naming it.

    The temporary folder is one of the session's own, so that another program's files are never ours to answer for;
    /dev/shm is shared by the machine, so run two sessions of these tests one after the other.
    """
    tmp = tmp_path_factory.mktemp("tmpdir", numbered=True)
    old_tempdir, old_env = tempfile.tempdir, os.environ.get("TMPDIR")
    tempfile.tempdir = str(tmp)
    os.environ["TMPDIR"] = str(tmp)
    before = {
        "processes": set(_descendants()),
        "threads": set(_threads()),
        "shm": _entries(SHM),
        "tmp": tmp,
        "tmp_entries": _entries(tmp),
    }
    yield
    tempfile.tempdir = old_tempdir
    if old_env is None:
        os.environ.pop("TMPDIR", None)
    else:
        os.environ["TMPDIR"] = old_env
    deadline = time.monotonic() + SETTLE_S
    left = _leftovers(before)
    settle = threading.Event()
    while left and time.monotonic() < deadline:
        settle.wait(0.05)
        left = _leftovers(before)
    if left:
        pytest.fail(f"{request.node.nodeid} left behind: " + "; ".join(left), pytrace=False)
