"""From a deployment to what the engine starts: stage specs, and the models that clients may name."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from omni_serve.contract import ModelInfo
from omni_serve.deploy.backends import BACKENDS
from omni_serve.deploy.model import Deployment, Stage
from omni_serve.stages.spec import StageSpec
from omni_serve.voice.config import ReplyConfig

DEFAULT_RING_BYTES = 4 << 20


def specs(deployment: Deployment) -> tuple[StageSpec, ...]:
    """The engine's stages. A ring belongs to its producer, so a stage's rings take its edges' largest size."""
    return tuple(_spec(stage, deployment) for stage in deployment.stages)


def models(deployment: Deployment) -> tuple[ModelInfo, ...]:
    """What clients may name, by what the stages do."""
    by_kind = {stage.kind: stage for stage in deployment.stages}
    found: list[ModelInfo] = []
    if "reply" in by_kind:
        found.append(ModelInfo("omni-voice", "voice", by_kind["reply"].name))
    writers = [stage for stage in deployment.stages if stage.kind in ("reply", "text")]
    found.extend(ModelInfo(_text_name(stage), "text", stage.name) for stage in writers)
    if "listen" in by_kind:
        found.append(ModelInfo("whisper-tiny.en", "transcription", by_kind["listen"].name))
    if "speak" in by_kind:
        found.append(ModelInfo("joe", "speech", by_kind["speak"].name))
    if "diffusion" in by_kind:
        stage = by_kind["diffusion"]
        found.append(ModelInfo(Path(stage.model or "").name, made_by(Path(stage.model or "")), stage.name))
    return tuple(found)


def instructions(deployment: Deployment) -> str:
    """The system message where a session gives none."""
    return deployment.server.instructions or ReplyConfig().instructions


def made_by(folder: Path) -> Any:
    """``image``, ``audio`` or ``video``, by a pipeline folder's class; image where the folder cannot be read."""
    try:
        name = str(json.loads((folder / "model_index.json").read_text()).get("_class_name", ""))
    except (OSError, ValueError):
        return "image"
    lowered = name.lower()
    if any(word in lowered for word in ("audio", "music", "sound")):
        return "audio"
    if any(word in lowered for word in ("video", "mochi", "cogvideo", "hunyuanvideo", "wan", "ltx", "allegro")):
        return "video"
    return "image"


def _text_name(stage: Stage) -> str:
    if stage.backend == "rules":
        return "rules"
    return "SmolLM2-135M-Instruct" if stage.model in (None, "smollm2") else Path(stage.model).name


def _spec(stage: Stage, deployment: Deployment) -> StageSpec:
    backend = BACKENDS[stage.kind][stage.backend]
    rings = [edge.ring_bytes for edge in deployment.edges if edge.source == stage.name]
    options: dict[str, Any] = dict(stage.options)
    if backend.torch:
        known = set() if backend.options is None else {field.name for field in fields(backend.options)}
        given = {
            "model": stage.model,
            "device": stage.devices[0],
            "weights": asdict(stage.weights),
            "offload": None if stage.offload is None else asdict(stage.offload),
        }
        options |= {name: value for name, value in given.items() if name in known and value is not None}
    return StageSpec(
        name=stage.name,
        kind=backend.engine_kind,  # type: ignore[arg-type]
        backend=backend.engine_name,
        width=stage.max_num_seqs,
        options=options,
        env=dict(stage.env),
        replicas=stage.replicas,
        ring_bytes=max(rings, default=DEFAULT_RING_BYTES),
    )
