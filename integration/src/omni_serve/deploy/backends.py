"""What each kind of stage can be made of: the deploy file's names, the engine's, and the settings each takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omni_serve.deploy.model import StageKind
from omni_serve.voice.config import ReplyConfig, SpeakConfig, TurnConfig

_NO_OPTIONS: type[Any] | None = None


@dataclass(frozen=True, slots=True)
class Backend:
    """One implementation of a kind.

    Attributes:
        engine_kind: The stage kind the engine knows it by.
        engine_name: The backend name the engine knows it by.
        options: The dataclass its options are held to; None where it takes none.
        torch: Whether it runs torch: then model, devices, weights and offload mean something.
        extra: The extra of omni-serve that it needs.
        built: False for one that can be planned, but whose stage is not built yet.
    """

    engine_kind: str
    engine_name: str
    options: type[Any] | None
    torch: bool
    extra: str
    built: bool = True


BACKENDS: dict[StageKind, dict[str, Backend]] = {
    "listen": {"whisper": Backend("listen", "voice", TurnConfig, torch=False, extra="voice")},
    "reply": {
        "llama": Backend("reply", "voice", ReplyConfig, torch=False, extra="voice"),
        "transformers": Backend("reply", "transformers", _NO_OPTIONS, torch=True, extra="transformers", built=False),
        "rules": Backend("reply", "rules", _NO_OPTIONS, torch=False, extra="voice"),
    },
    "speak": {"piper": Backend("speak", "voice", SpeakConfig, torch=False, extra="voice")},
    "text": {
        "llama": Backend("reply", "voice", ReplyConfig, torch=False, extra="voice"),
        "transformers": Backend("reply", "transformers", _NO_OPTIONS, torch=True, extra="transformers", built=False),
        "rules": Backend("reply", "rules", _NO_OPTIONS, torch=False, extra="voice"),
    },
    "diffusion": {"diffusers": Backend("media", "diffusers", _NO_OPTIONS, torch=True, extra="diffusion", built=False)},
}
"""By kind, the default first."""
