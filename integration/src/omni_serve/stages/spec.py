"""What a stage process is told at its start, and what it reports until it is ready."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

StageKind = Literal["listen", "reply", "speak", "media"]


class StageSpec(msgspec.Struct, frozen=True):
    """One stage of a deployment.

    Attributes:
        name: Its name in the deploy file; process names add the replica's number.
        kind: What it does.
        backend: Which part does it: ``voice`` or ``rules`` here, others by the backends package.
        width: Jobs it works on side by side.
        options: The backend's own settings, validated before any process starts.
        env: Text values for the environment of its processes.
        replicas: How many processes.
    """

    name: str
    kind: StageKind
    backend: str
    width: int = 4
    options: dict[str, Any] = {}
    env: dict[str, str] = {}
    replicas: int = 1
    ring_bytes: int = 4 << 20


class Launch(msgspec.Struct, frozen=True):
    """The first line on a stage process's standard input."""

    spec: StageSpec
    process: str
    incarnation: int
    scope: str
    parent_pid: int


class Report(msgspec.Struct, frozen=True):
    """A line on the report pipe. ``state``: progress, ready, or failed with what to do in ``text``."""

    state: Literal["progress", "ready", "failed"]
    text: str = ""
