"""The built-in voice deployment, as stages and models."""

from __future__ import annotations

from omni_serve.contract import ModelInfo
from omni_serve.engine.config import EngineConfig
from omni_serve.engine.engine import LocalEngine
from omni_serve.stages.spec import StageSpec
from omni_serve.voice.config import ReplyConfig
from omni_serve.voice.weights import require_modules

VOICE_MODELS = (
    ModelInfo("omni-voice", "voice", "reply"),
    ModelInfo("SmolLM2-135M-Instruct", "text", "reply"),
    ModelInfo("whisper-tiny.en", "transcription", "listen"),
    ModelInfo("joe", "speech", "speak"),
)


def voice_specs(*, rules: bool = False, width: int = 4) -> tuple[StageSpec, ...]:
    """The three stages of the embedded voice. ``rules``: the deterministic replier in place of the language model."""
    return (
        StageSpec("listen", "listen", "voice"),
        StageSpec("reply", "reply", "rules" if rules else "voice", width=width),
        StageSpec("speak", "speak", "voice"),
    )


def voice_engine(config: EngineConfig | None = None, *, rules: bool = False) -> LocalEngine:
    """The embedded voice, not yet started. Raises StartupError with the install line without the ``voice`` extra."""
    require_modules()
    return LocalEngine(voice_specs(rules=rules), VOICE_MODELS, ReplyConfig().instructions, config or EngineConfig())
