"""Adapting the transport as a connector of vLLM-Omni: put and get between numbered stages by key.

An engine of that design hands a connector (from_stage, to_stage, key, data) and keeps what put returns as metadata
that travels with the request. The class below has that shape; plug it in where your engine builds its connectors. It
does not import the engine, so that this file runs by itself.

python vllm_omni_connector.py
"""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np

from omni_shmring import BacklogError, NoSpaceError, Transport, TransportConfig


class ShmringConnector:
    """One per stage process."""

    def __init__(self, stage: int, deployment: str, ring_bytes: int = 4 << 20) -> None:
        self._transport = Transport(stage, scope=deployment, config=TransportConfig(ring_bytes=ring_bytes))

    def put(self, from_stage: int, to_stage: int, key: str, data: Any) -> tuple[bool, int, dict[str, Any] | None]:
        """(whether it is on its way, its size, metadata for the receiving stage)."""
        try:
            descriptor = self._transport.put(to_stage, key, data)
        except (BacklogError, NoSpaceError):
            return False, 0, None  # the engine keeps the request and tries again
        return True, descriptor.nbytes, {"descriptor": descriptor.to_bytes()}

    def get(
        self, from_stage: int, to_stage: int, key: str, metadata: dict[str, Any] | None = None
    ) -> tuple[Any, int] | None:
        """(data, its size), or None while it is not there."""
        got = self._transport.get(from_stage, key, metadata["descriptor"] if metadata else None)
        return None if got is None else (got.payload, got.nbytes)

    def wait(self, from_stage: int, key: str, timeout_s: float) -> tuple[Any, int] | None:
        """Like get, blocking without polling: what a stage's input thread calls."""
        got = self._transport.wait(from_stage, key, timeout_s)
        return None if got is None else (got.payload, got.nbytes)

    def cleanup(self, to_stage: int, request_id: str) -> int:
        """An aborted request: take back its chunks."""
        return self._transport.cancel_prefix(to_stage, f"{request_id}_")

    def close(self) -> None:
        self._transport.close()


def stage_one(deployment: str) -> None:
    connector = ShmringConnector(1, deployment)
    for chunk in range(3):
        found = connector.wait(0, f"req-1_{chunk}", timeout_s=60)
        assert found is not None
        data, nbytes = found
        connector.put(1, 0, f"ack_{chunk}", (float(data["hidden"].mean()), nbytes))
    connector.close()


def main() -> None:
    deployment = "example-connector"
    process = multiprocessing.get_context("spawn").Process(target=stage_one, args=(deployment,))
    process.start()
    connector = ShmringConnector(0, deployment)
    for chunk in range(3):
        sent, nbytes, metadata = connector.put(
            0, 1, f"req-1_{chunk}", {"hidden": np.full((64, 512), chunk, np.float32)}
        )
        print(f"chunk {chunk}: sent {sent}, {nbytes} bytes, metadata of {len(str(metadata))} characters")
        answer = connector.wait(1, f"ack_{chunk}", timeout_s=60)
        assert answer is not None
        print(f"  stage 1 says mean {answer[0][0]}, {answer[0][1]} bytes")
    connector.put(0, 1, "req-2_0", "never read")
    print("aborted request, chunks taken back:", connector.cleanup(1, "req-2"))
    process.join()
    connector.close()


if __name__ == "__main__":
    main()
