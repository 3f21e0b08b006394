"""Realtime full-duplex client and the benchmark around it."""

from omni_duplex_bench.client import ClientConfig, RealtimeClient
from omni_duplex_bench.core import CoreConfig, SessionCore
from omni_duplex_bench.errors import (
    ArtifactError,
    AudioFormatError,
    ConnectError,
    DatasetError,
    DialectMismatchError,
    DuplexBenchError,
    MalformedEventError,
    MediaError,
    MediaTimeoutError,
    NoDecisionError,
    ProtocolError,
    ServerError,
    SessionEndedError,
    UnsafeArchiveError,
    UnsupportedByServerError,
    UsageError,
)
from omni_duplex_bench.pacing import PacingConfig

__all__ = [
    # errors
    "ArtifactError",
    "AudioFormatError",
    # client
    "ClientConfig",
    "ConnectError",
    # core
    "CoreConfig",
    "DatasetError",
    "DialectMismatchError",
    "DuplexBenchError",
    "MalformedEventError",
    "MediaError",
    "MediaTimeoutError",
    "NoDecisionError",
    "PacingConfig",
    "ProtocolError",
    "RealtimeClient",
    "ServerError",
    "SessionCore",
    "SessionEndedError",
    "UnsafeArchiveError",
    "UnsupportedByServerError",
    "UsageError",
]
