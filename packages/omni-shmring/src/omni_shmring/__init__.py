"""Tensors and Python values between processes of one host, over shared memory."""

from __future__ import annotations

from omni_shmring.config import TransportConfig
from omni_shmring.descriptor import Descriptor
from omni_shmring.errors import (
    BacklogError,
    ClosedError,
    DamagedError,
    DecodeError,
    DescriptorError,
    EncodeError,
    ForkedError,
    InvalidArgumentError,
    NoSpaceError,
    ScopeError,
    ShmringError,
    TooManyReceiversError,
)
from omni_shmring.lease import Lease
from omni_shmring.receiver import Received
from omni_shmring.stats import EdgeStats, Stats
from omni_shmring.transport import Transport

__all__ = [  # noqa: RUF022 (grouped by what a reader looks for)
    # transport
    "Transport",
    "TransportConfig",
    "Received",
    "Lease",
    "Descriptor",
    # statistics
    "Stats",
    "EdgeStats",
    # errors
    "ShmringError",
    "BacklogError",
    "ClosedError",
    "DamagedError",
    "DecodeError",
    "DescriptorError",
    "EncodeError",
    "ForkedError",
    "InvalidArgumentError",
    "NoSpaceError",
    "ScopeError",
    "TooManyReceiversError",
]

__version__ = "0.1.0"
