"""From a tree of Python values to one frame of bytes and back, exactly."""

from __future__ import annotations

from omni_shmring.codec.codec import Codec
from omni_shmring.codec.frame import Frame, Parts

__all__ = ["Codec", "Frame", "Parts"]
