"""Host weight runtime: runtime-ready weights published once per node, mapped by every worker."""

from __future__ import annotations

from omni_hwr.config import MapOptions, Progress, StoreConfig
from omni_hwr.errors import WeightStoreError
from omni_hwr.key import WeightKey
from omni_hwr.layout import TensorSpec
from omni_hwr.lease import Lease
from omni_hwr.module import from_module, restore_into
from omni_hwr.producer import StreamProducer, TensorSink
from omni_hwr.resolve import Resolution
from omni_hwr.space import PrunePolicy
from omni_hwr.store import Entry, WeightStore

__version__ = "0.1.0"

__all__ = [
    "Entry",
    "Lease",
    "MapOptions",
    "Progress",
    "PrunePolicy",
    "Resolution",
    "StoreConfig",
    "StreamProducer",
    "TensorSink",
    "TensorSpec",
    "WeightKey",
    "WeightStore",
    "WeightStoreError",
    "from_module",
    "restore_into",
]
