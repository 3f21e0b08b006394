"""Exact-shape graph capture for encoders: a cache behind a capture protocol, and its CUDA backend."""

from omni_serve.graphs.cache import (
    CaptureBackend,
    Captured,
    GraphCache,
    GraphCacheConfig,
    GraphCaptureError,
    GraphCounters,
)

__all__ = ["CaptureBackend", "Captured", "GraphCache", "GraphCacheConfig", "GraphCaptureError", "GraphCounters"]
