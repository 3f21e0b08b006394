"""omni-shmring as a vLLM-Omni connector, in the shape of its SharedMemoryConnector.

vLLM-Omni loads the entry point ``register`` (group ``vllm_omni.general_plugins``) in every process; a stage config
then names ``OmniShmringConnector``. vLLM-Omni's contract is kept: a failed put is ``(False, 0, None)`` and a line in
the log, "not there yet" is None, and ``cleanup`` takes the exact key.
"""

from __future__ import annotations

import logging
from typing import Any

from omni_serve.connectors.ring import RingConnector, RingConnectorConfig
from omni_shmring import ShmringError

log = logging.getLogger("omni_serve.connectors")

NAME = "OmniShmringConnector"


def register() -> None:
    """Make the connector known to vLLM-Omni's factory. Idempotent. Raises ImportError without vllm-omni."""
    from vllm_omni.distributed.omni_connectors.connectors.base import (  # type: ignore[import-not-found]
        OmniConnectorBase,
    )
    from vllm_omni.distributed.omni_connectors.factory import (  # type: ignore[import-not-found]
        OmniConnectorFactory,
    )

    register_with(OmniConnectorBase, OmniConnectorFactory)


def register_with(base: type[Any], factory: Any) -> None:
    """As register(), with vLLM-Omni's base class and factory given."""
    if NAME not in factory.list_registered_connectors():
        factory.register_connector(NAME, connector_class(base))


def connector_class(base: type[Any]) -> type[Any]:
    """The connector as a subclass of vLLM-Omni's ``OmniConnectorBase``."""

    class OmniShmringConnector(base):  # type: ignore[misc]
        """Takes ``scope``, ``ring_bytes`` and ``max_pending_bytes`` from ``config``; the rest is the engine's."""

        supports_raw_data = True

        def __init__(self, config: dict[str, Any]) -> None:
            own = {name: config[name] for name in RingConnectorConfig.__dataclass_fields__ if name in config}
            self.config = config
            self.stage_id = config.get("stage_id", -1)
            self._ring = RingConnector(RingConnectorConfig(**own))

        def put(
            self, from_stage: str, to_stage: str, put_key: str, data: Any
        ) -> tuple[bool, int, dict[str, Any] | None]:
            """Publish; the metadata names this publication and nothing else."""
            try:
                size, handle = self._ring.put(str(from_stage), str(to_stage), put_key, data)
            except ShmringError as error:
                log.error("put of %s from %s to %s failed: %s", put_key, from_stage, to_stage, error)
                return False, 0, None
            return True, size, {"shmring": handle, "size": size}

        def get(
            self, from_stage: str, to_stage: str, get_key: str, metadata: dict[str, Any] | None = None
        ) -> tuple[Any, int] | None:
            """Take by key, or exactly the publication that the metadata names."""
            got = self._ring.get(str(from_stage), str(to_stage), get_key, _handle(get_key, metadata))
            return None if got is None else (got.payload, got.nbytes)

        def get_with_deadline(
            self,
            from_stage: str,
            to_stage: str,
            get_key: str,
            metadata: dict[str, Any] | None = None,
            *,
            deadline: float,
        ) -> tuple[Any, int] | None:
            """Take by key, asleep until the message or ``deadline`` (time.monotonic()) comes."""
            got = self._ring.get_with_deadline(
                str(from_stage), str(to_stage), get_key, _handle(get_key, metadata), deadline_s=deadline
            )
            return None if got is None else (got.payload, got.nbytes)

        def cleanup(self, request_id: str) -> None:
            """Retire exactly this key."""
            self._ring.cleanup(request_id)

        def cleanup_prefix(self, prefix: str) -> None:
            """Retire every chunk of a request."""
            self._ring.cleanup_prefix(prefix)

        def health(self) -> dict[str, Any]:
            """Status and counters."""
            found = self._ring.health()
            return {
                "status": "healthy",
                "puts": found.puts,
                "gets": found.gets,
                "bytes_transferred": found.bytes_put,
                "pending": found.pending,
                "pending_bytes": found.pending_bytes,
            }

        def close(self) -> None:
            """Idempotent, and harmless on an instance whose __init__ failed: the base class calls it from __del__."""
            ring = self.__dict__.get("_ring")
            if ring is not None:
                ring.close()

    return OmniShmringConnector


def _handle(key: str, metadata: dict[str, Any] | None) -> bytes | None:
    """The publication that metadata names, by itself or under its key; other transports' metadata names none."""
    if isinstance(metadata, dict) and isinstance(metadata.get(key), dict):
        metadata = metadata[key]
    handle = metadata.get("shmring") if isinstance(metadata, dict) else None
    return handle if isinstance(handle, bytes) else None
