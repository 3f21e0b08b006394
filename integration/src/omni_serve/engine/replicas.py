"""A replica: one process of a stage, as the orchestrator knows it."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from typing import Protocol

from omni_serve.stages.spec import StageSpec


@dataclass(slots=True, eq=False)
class Replica:
    """One process of a stage. ``incarnation`` counts its starts; ``bound`` are the jobs and sessions it owns."""

    spec: StageSpec
    name: str
    incarnation: int = 0
    process: subprocess.Popen[bytes] | None = None
    up: bool = False
    ready_s: float = 0.0
    restarts: int = 0
    detail: str = ""
    bound: set[str] = field(default_factory=set)


class Listener(Protocol):
    """Who is told about replicas, in the event loop."""

    def replica_up(self, replica: Replica) -> None: ...

    def replica_down(self, replica: Replica, why: str) -> None: ...
