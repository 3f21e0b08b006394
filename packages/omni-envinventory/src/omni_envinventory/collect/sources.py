"""Where an environment can be read from: this process, another by its number, or what a worker wrote of itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Label(StrEnum):
    """What a set of variables shows.

    ``LIVE``: as they are now. ``EXEC``: as the process was started with; what it changed since does not show.
    ``UNAVAILABLE``: they could not be seen, which says nothing about whether anything is set.
    """

    LIVE = "live"
    EXEC = "exec"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment as read; ``repr`` never shows values.

    Attributes:
        label: What it shows.
        pid: The process.
        variables: Names and raw values, or None when unavailable.
        reason: Why it is unavailable, or a remark.
    """

    label: Label
    pid: int
    variables: Mapping[str, str] | None
    reason: str = ""

    def __repr__(self) -> str:
        number = "none" if self.variables is None else str(len(self.variables))
        return f"Environment(label={self.label!s}, pid={self.pid}, variables=<{number}>)"


def this_process(environ: Mapping[str, str] | None = None) -> Environment:
    """The environment of this process as it is now."""
    return Environment(Label.LIVE, os.getpid(), dict(os.environ if environ is None else environ))


def of_process(pid: int, *, proc: Path = Path("/proc")) -> Environment:
    """The environment another process was started with, from ``/proc/PID/environ`` (proc_pid_environ(5)).

    It is fixed at ``exec``, is the memory that a process-title change overwrites, and can be read by its owner only:
    each of these makes it unavailable with the reason, never "unset".
    """
    try:
        data = (proc / str(pid) / "environ").read_bytes()
    except FileNotFoundError:
        return Environment(Label.UNAVAILABLE, pid, None, "there is no such process")
    except PermissionError:
        return Environment(Label.UNAVAILABLE, pid, None, "its owner alone may read it")
    except OSError as error:
        return Environment(
            Label.UNAVAILABLE, pid, None, os.strerror(error.errno) if error.errno else "it could not be read"
        )
    entries = [entry for entry in data.split(b"\0") if entry]
    if not entries:
        return Environment(
            Label.UNAVAILABLE, pid, None, "it is empty: the process changed its title, or has no environment"
        )
    variables: dict[str, str] = {}
    damaged = 0
    for entry in entries:
        name, separator, value = entry.partition(b"=")
        if separator and name and not name.startswith(b" ") and b" " not in name:
            variables.setdefault(os.fsdecode(name), os.fsdecode(value))
        else:
            damaged += 1
    if not variables:
        return Environment(Label.UNAVAILABLE, pid, None, "it was overwritten by a process-title change")
    remark = "part of it was overwritten by a process-title change" if damaged else ""
    return Environment(Label.EXEC, pid, variables, remark)
