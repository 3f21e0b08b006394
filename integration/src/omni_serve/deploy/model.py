"""A deployment as validated data: what a deploy file says, with every default in one place.

``load.py`` makes these from YAML; ``specs.py`` turns them into what the engine starts. Nothing here knows YAML.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

StageKind = Literal["listen", "reply", "speak", "text", "diffusion"]
WeightsMode = Literal["disabled", "preferred", "required"]

MIN_RING_BYTES = 4 << 10
MAX_RING_BYTES = 64 << 20

DEFAULT_WIDTH = 4


@dataclass(frozen=True, slots=True)
class Weights:
    """Where a torch stage's weights come from.

    Attributes:
        mode: ``disabled`` loads as usual; ``preferred`` maps them from the node's store when they are there and
            publishes them when not; ``required`` maps them or fails.
        root: The store's folder.
    """

    mode: WeightsMode = "disabled"
    root: str | None = None


@dataclass(frozen=True, slots=True)
class Offload:
    """How a torch stage's weights are streamed to its device. Absent: all of them stay there.

    Attributes:
        transfer: ``local`` from this process's host memory; ``allgather`` a share from every replica.
        resident_blocks: Blocks that stay on the device.
        components: Which encoders and VAEs may leave the device between uses.
        registration_limit_gib: Bound on mapped memory registered with the device; 0 stages through pinned memory.
    """

    transfer: Literal["local", "allgather"] = "local"
    resident_blocks: int = 0
    components: Mapping[str, bool] = field(default_factory=dict)
    registration_limit_gib: float = 0.0


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the graph.

    Attributes:
        name: Its id; process names add the replica's number.
        kind: What it does.
        backend: Which implementation does it.
        model: A folder, or the name of a packaged model; None takes the backend's own.
        devices: Where it runs.
        env: Variables of its processes, text to text.
        max_num_seqs: The scheduler's width: pieces of work side by side. A client's batch size never changes it.
        replicas: Processes of this stage.
        options: The backend's own settings, checked against its config.
        weights: See Weights.
        offload: See Offload.
    """

    name: str
    kind: StageKind
    backend: str
    model: str | None = None
    devices: tuple[str, ...] = ("cpu",)
    env: Mapping[str, str] = field(default_factory=dict)
    max_num_seqs: int = DEFAULT_WIDTH
    replicas: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)
    weights: Weights = field(default_factory=Weights)
    offload: Offload | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed edge between two stages, carried by a shared-memory ring of the producing process."""

    source: str
    target: str
    connector: Literal["shmring"] = "shmring"
    ring_bytes: int = 4 << 20


@dataclass(frozen=True, slots=True)
class Server:
    """The front's settings; command-line flags win over these."""

    host: str = "127.0.0.1"
    port: int = 8000
    max_sessions: int = 8
    max_session_s: float = 3600.0
    idle_s: float = 300.0
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """A whole deploy file."""

    name: str
    stages: tuple[Stage, ...]
    edges: tuple[Edge, ...]
    server: Server = field(default_factory=Server)
