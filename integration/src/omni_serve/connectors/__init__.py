"""Edges for other engines: a connector contract, omni-shmring behind it, and an adapter for vLLM-Omni."""

from omni_serve.connectors.contract import Connector, ConnectorHealth, Got
from omni_serve.connectors.ring import RingConnector, RingConnectorConfig

__all__ = ["Connector", "ConnectorHealth", "Got", "RingConnector", "RingConnectorConfig"]
