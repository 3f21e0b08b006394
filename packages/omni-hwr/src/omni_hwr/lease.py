"""What a process holds of an artifact while it uses it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NoReturn, Self

import torch

from omni_hwr.artifact import Artifact
from omni_hwr.errors import ClosedError
from omni_hwr.key import WeightKey
from omni_hwr.manifest import Kind
from omni_hwr.mapping import Mapped, Region

Source = Literal["hit", "joined", "built"]
"""How the caller came by its artifact: found, built by another meanwhile, or built by the caller."""


class Lease:
    """An artifact that stays while this is open. Belongs to the process that took it; cannot be pickled.

    The tensors are views of a mapping that the system lets nobody write through: an attempt ends the process with
    SIGSEGV. Those that outlive the lease stay valid, each by a reference to its mapping.
    """

    def __init__(self, artifact: Artifact, mapped: Mapped, source: Source) -> None:
        self._artifact = artifact
        self._mapped: Mapped | None = mapped
        self._kinds = {view.name: view.kind for view in artifact.manifest.views}
        self.source: Source = source
        self.refusals = mapped.refusals
        """Options of :class:`MapOptions` that the system refused, in words."""

    @property
    def key(self) -> WeightKey:
        """The key that was published."""
        return self._artifact.manifest.key

    @property
    def digest(self) -> str:
        """The key's digest, the artifact's name in the store."""
        return self._artifact.digest

    @property
    def content_digest(self) -> str:
        """Digest of names, data types, shapes, strides and bytes: the same for the same content under any key."""
        return self._artifact.manifest.content_digest

    @property
    def nbytes(self) -> int:
        """Size of the payload files in bytes."""
        return self._artifact.manifest.nbytes

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """Every published tensor by name: CPU, read-only, sharing memory as the published ones did."""
        return MappingProxyType(self._open().tensors)

    @property
    def regions(self) -> tuple[Region, ...]:
        """The page ranges that map the payload files: ``(file, address, nbytes)`` each."""
        return self._open().regions

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """What each tensor is to its module; ``tensor`` where no module was published."""
        return MappingProxyType(self._kinds)

    def _open(self) -> Mapped:
        if self._mapped is None:
            raise ClosedError(f"the lease of {self.digest[:12]} is closed")
        return self._mapped

    def close(self) -> None:
        """Let the artifact go; tensors that somebody still holds stay valid. Harmless when repeated."""
        self._mapped = None
        self._artifact.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a lease belongs to its process; send the key and lease it there")

    def __repr__(self) -> str:
        state = "closed" if self._mapped is None else f"{len(self._mapped.tensors)} tensors, {self.nbytes} bytes"
        return f"<Lease {self.digest[:12]} {self.source}: {state}>"
