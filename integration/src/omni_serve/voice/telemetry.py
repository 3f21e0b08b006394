"""Keeps the voice's runtimes from reporting home."""

from __future__ import annotations

import os


def forbid_telemetry() -> None:
    """Call before onnxruntime is imported.

    Its Linux wheels (1.32 for one) carry a client that writes a session file to the temporary folder and contacts its
    maker from a thread of its own, from the import on; ``disable_telemetry_events()`` comes too late for both.
    """
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
