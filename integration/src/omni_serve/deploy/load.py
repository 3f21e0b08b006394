"""From a deploy file to a Deployment, with every mistake told before anything starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from omni_serve.deploy.backends import BACKENDS
from omni_serve.deploy.check import check
from omni_serve.deploy.model import (
    DEFAULT_WIDTH,
    MAX_RING_BYTES,
    MIN_RING_BYTES,
    Deployment,
    Edge,
    Offload,
    Server,
    Stage,
    Weights,
)
from omni_serve.deploy.reader import MapReader, Mistakes
from omni_serve.deploy.source import Tree, parse
from omni_serve.errors import DeployError

BUILTIN = ("voice", "text", "image")

_STAGE = (
    "name", "id", "kind", "backend", "model", "devices", "env", "max_num_seqs", "replicas", "placement", "options",
    "weights", "offload",
)  # fmt: skip


class DeployFileError(DeployError):
    """Everything that is wrong with one deploy file.

    Attributes:
        mistakes: Each with its line and column, in the order of the file.
    """

    def __init__(self, mistakes: Sequence[DeployError], path: str) -> None:
        ordered = sorted(mistakes, key=lambda found: (found.line or 0, found.column or 0))
        Exception.__init__(self, "\n".join(str(found) for found in ordered))
        self.mistakes = tuple(ordered)
        self.path, self.line, self.column = path, ordered[0].line, ordered[0].column


def load(path: Path) -> Deployment:
    """Read and check a deploy file.

    Raises:
        DeployFileError: With all its mistakes.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DeployFileError([DeployError(f"cannot be read: {error.strerror}", path=str(path))], str(path)) from None
    return loads(data, str(path))


def load_builtin(name: str, model: str | None = None) -> Deployment:
    """One of the deployments that ship with the package; ``model`` takes the place of its own model.

    Raises:
        DeployFileError: No such deployment, or it needs a model and none is given.
    """
    if name not in BUILTIN:
        wrong = DeployError(f"no such built-in deployment; there are {', '.join(BUILTIN)}", path=name)
        raise DeployFileError([wrong], name)
    path = f"{name}.yaml"
    data = resources.files("omni_serve.deploy").joinpath("builtin", path).read_bytes()
    return loads(data, path, model=model)


def loads(data: bytes, path: str, *, model: str | None = None) -> Deployment:
    """As load(), from bytes. ``model`` overrides the model of the stage that runs one (text or diffusion)."""
    mistakes = Mistakes(path)
    try:
        tree = parse(data, path)
    except DeployError as error:
        raise DeployFileError([error], path) from None
    top = MapReader(tree, "the file", ("name", "stages", "edges", "server"), mistakes)
    stages: list[tuple[Stage, Tree]] = []
    if not top.items("stages"):
        mistakes.at(top.place("stages"), "the file needs stages, a list with at least one")
    for number, item in enumerate(top.items("stages")):
        stage = _stage(item, number, mistakes)
        if model is not None and stage.kind in ("text", "diffusion"):
            backend = "transformers" if stage.kind == "text" else stage.backend
            stage = replace(stage, model=model, backend=backend)
        stages.append((stage, item))
    edges = [(_edge(item, number, mistakes), item) for number, item in enumerate(top.items("edges"))]
    server = _server(top.get("server"), mistakes)
    name = top.text("name") or Path(path).stem
    if not mistakes.found:
        check(stages, edges, mistakes)
    if mistakes.found:
        raise DeployFileError(mistakes.found, path)
    deployment = Deployment(name, tuple(stage for stage, _ in stages), tuple(edge for edge, _ in edges), server)
    return deployment if edges else replace(deployment, edges=_natural_edges(deployment.stages))


def _stage(tree: Tree, number: int, mistakes: Mistakes) -> Stage:
    where = f"stages[{number}]"
    read = MapReader(tree, where, _STAGE, mistakes)
    if read.has("name") and read.has("id"):
        mistakes.at(read.place("id"), f"{where} has both name and id; keep one")
    name = _name(read, mistakes, where)
    kind = read.word("kind", BACKENDS, "text", required=True)
    backends = BACKENDS[kind]  # type: ignore[index]
    backend = read.word("backend", backends, next(iter(backends)))
    runs_torch = backends[backend].torch
    for field in ("model", "weights", "offload"):
        if read.has(field) and not runs_torch:
            mistakes.at(read.place(field), f"{where}.{field} means nothing to backend {backend!r}, which ships its own")
    devices = tuple(_device(item, where, mistakes) for item in read.items("devices")) or ("cpu",)
    if not runs_torch and devices != ("cpu",):
        mistakes.at(read.place("devices"), f"{where}.devices: backend {backend!r} runs on the CPU")
    placement = read.word("placement", ("local", "ray"), "local")
    if placement == "ray":
        mistakes.at(read.place("placement"), f"{where}.placement: ray is not built yet; leave it out or write local")
    options = _options(read.get("options"), backends[backend].options, where, backend, mistakes)
    return Stage(
        name=name,
        kind=kind,  # type: ignore[arg-type]
        backend=backend,
        model=read.text("model"),
        devices=devices,
        env=read.texts("env"),
        max_num_seqs=read.integer("max_num_seqs", DEFAULT_WIDTH, 1, 1024),
        replicas=read.integer("replicas", 1, 1, 64),
        options=options,
        weights=_weights(read.get("weights"), where, mistakes),
        offload=_offload(read.get("offload"), where, mistakes),
    )


def _name(read: MapReader, mistakes: Mistakes, where: str) -> str:
    tree = read.get("name") or read.get("id")
    if tree is None:
        mistakes.at(read.place("name"), f"{where} needs a name")
        return where
    name = tree.value
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    good = (
        isinstance(name, str) and 0 < len(name) <= 64 and all(c.isascii() and (c.isalnum() or c in "-_") for c in name)
    )
    if not good:
        mistakes.at(tree, f"{where}.name must be 1 to 64 letters, digits, - and _")
        return where
    if name == "api":
        mistakes.at(tree, f"{where}.name is 'api', which is the server's own; choose another")
    return str(name)


def _device(tree: Tree, where: str, mistakes: Mistakes) -> str:
    text = tree.value
    head, _, index = text.partition(":") if isinstance(text, str) else ("", "", "")
    if head not in ("cpu", "cuda", "xpu", "npu") or (index and not index.isdigit()):
        mistakes.at(tree, f"{where}.devices: {str(text)[:40]!r} is no device; write cpu, cuda:0, xpu:0 or npu:0")
        return "cpu"
    return str(text)


def _weights(tree: Tree | None, where: str, mistakes: Mistakes) -> Weights:
    read = MapReader(tree, f"{where}.weights", ("mode", "root"), mistakes)
    mode = read.word("mode", ("disabled", "preferred", "required"), "disabled")
    root = read.text("root")
    if mode != "disabled" and root is None:
        mistakes.at(read.place("root"), f"{where}.weights needs root, the store's folder, with mode {mode}")
    return Weights(mode, root)  # type: ignore[arg-type]


def _offload(tree: Tree | None, where: str, mistakes: Mistakes) -> Offload | None:
    if tree is None:
        return None
    known = ("transfer", "resident_blocks", "components", "registration_limit_gib")
    read = MapReader(tree, f"{where}.offload", known, mistakes)
    return Offload(
        transfer=read.word("transfer", ("local", "allgather"), "local"),  # type: ignore[arg-type]
        resident_blocks=read.integer("resident_blocks", 0, 0, 100_000),
        components=read.flags("components"),
        registration_limit_gib=read.number("registration_limit_gib", 0.0, 0.0, 1e6),
    )


def _options(
    tree: Tree | None, config: type[Any] | None, where: str, backend: str, mistakes: Mistakes
) -> dict[str, Any]:
    """Options are held to the backend's own config; its message's path is found again in the file."""
    if tree is None:
        return {}
    plain = tree.plain()
    if not isinstance(plain, dict):
        mistakes.at(tree, f"{where}.options must be a mapping")
        return {}
    if config is None:
        if plain:
            mistakes.at(tree, f"{where}.options: backend {backend!r} takes none")
        return {}
    fields = (
        {field.name for field in msgspec.structs.fields(config)}
        if _is_struct(config)
        else set(config.__dataclass_fields__)
    )
    MapReader(tree, f"{where}.options", sorted(fields), mistakes)
    for name, child in tree.value.items():
        if name in fields:
            try:
                msgspec.convert({name: plain[name]}, config)
            except msgspec.ValidationError as error:
                mistakes.at(child, f"{where}.options.{name}: {str(error).partition(' - at')[0]}")
    return plain


def _is_struct(config: type[Any]) -> bool:
    return issubclass(config, msgspec.Struct)


def _edge(tree: Tree, number: int, mistakes: Mistakes) -> Edge:
    where = f"edges[{number}]"
    read = MapReader(tree, where, ("from", "to", "connector", "ring_bytes"), mistakes)
    return Edge(
        source=read.text("from", required=True) or "",
        target=read.text("to", required=True) or "",
        connector=read.word("connector", ("shmring",), "shmring"),  # type: ignore[arg-type]
        ring_bytes=read.integer("ring_bytes", 4 << 20, MIN_RING_BYTES, MAX_RING_BYTES),
    )


def _server(tree: Tree | None, mistakes: Mistakes) -> Server:
    default = Server()
    read = MapReader(tree, "server", tuple(Server.__dataclass_fields__), mistakes)
    return Server(
        host=read.text("host") or default.host,
        port=read.integer("port", default.port, 0, 65535),
        max_sessions=read.integer("max_sessions", default.max_sessions, 1, 10_000),
        max_session_s=read.number("max_session_s", default.max_session_s, 1.0, 1e6),
        idle_s=read.number("idle_s", default.idle_s, 1.0, 1e6),
        instructions=read.text("instructions"),
    )


def _natural_edges(stages: Sequence[Stage]) -> tuple[Edge, ...]:
    """The edges a voice has anyway, where the file names none."""
    by_kind = {stage.kind: stage.name for stage in stages}
    pairs = (("listen", "reply"), ("reply", "speak"))
    return tuple(Edge(by_kind[a], by_kind[b]) for a, b in pairs if a in by_kind and b in by_kind)
