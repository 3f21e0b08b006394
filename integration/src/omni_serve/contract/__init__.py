"""What the API asks of the engine and what the engine answers: the one seam between the two.

The API turns wire events and HTTP bodies into these calls; the engine turns them into work for its stages. Neither
knows the other's inside. Audio is mono signed 16-bit: 16 kHz on the way in, 24 kHz on the way out.
"""

from omni_serve.contract.audio import (
    INPUT_RATE_HZ,
    OUTPUT_RATE_HZ,
    Modality,
    Pcm,
    ReplyStatus,
    Role,
)
from omni_serve.contract.engine import (
    Engine,
)
from omni_serve.contract.requests import (
    ChatPiece,
    ChatRequest,
    Health,
    MediaRequest,
    MediaResult,
    Message,
    ModelInfo,
    StageHealth,
    Transcript,
)
from omni_serve.contract.session import (
    Listening,
    ReplyAudio,
    ReplyDone,
    ReplyOptions,
    ReplyStarted,
    ReplyText,
    Session,
    SessionEvent,
    SessionFault,
    SessionOptions,
    SpeechStarted,
    SpeechStopped,
    StageMetrics,
    Transcribed,
    TurnCommitted,
    TurnDetection,
)

__all__ = [
    "INPUT_RATE_HZ",
    "OUTPUT_RATE_HZ",
    "ChatPiece",
    "ChatRequest",
    "Engine",
    "Health",
    "Listening",
    "MediaRequest",
    "MediaResult",
    "Message",
    "Modality",
    "ModelInfo",
    "Pcm",
    "ReplyAudio",
    "ReplyDone",
    "ReplyOptions",
    "ReplyStarted",
    "ReplyStatus",
    "ReplyText",
    "Role",
    "Session",
    "SessionEvent",
    "SessionFault",
    "SessionOptions",
    "SpeechStarted",
    "SpeechStopped",
    "StageHealth",
    "StageMetrics",
    "Transcribed",
    "Transcript",
    "TurnCommitted",
    "TurnDetection",
]
