"""Every fault of the store, as one small tree.

Each class has a ``code`` that a log or a dashboard can group by, says through ``retry`` whether the same call may
succeed later without anybody's doing, and carries what happened as fields. Each also is the built-in exception that a
caller who knows nothing of this package would catch.
"""

from __future__ import annotations

import os
from typing import ClassVar


class WeightStoreError(Exception):
    """Base of every error that this package raises on purpose."""

    code: ClassVar[str] = "store"
    retry: ClassVar[bool] = False


class KeyFormatError(WeightStoreError, ValueError):
    """A key, a manifest's key or a digest that is not of the documented form."""

    code = "key"


class MissingError(WeightStoreError, LookupError):
    """No artifact of this key is published, and nobody was asked to build one."""

    code = "missing"
    retry = True

    def __init__(self, digest: str) -> None:
        super().__init__(
            f"no artifact {digest[:12]} in the store; publish it first, or pass a producer to get_or_build()"
        )
        self.digest = digest


class DeniedError(WeightStoreError, ValueError):
    """An artifact failed a check: it is denied to every process and moved to quarantine.

    ``reason`` is a short fixed word (``truncated``, ``owner``, ``mode``, ``symlink``, ``hardlink``, ``listing``,
    ``ready``, ``manifest``, ``header``, ``key``, ``payload``, ``oversized``, ``denied``); ``detail`` says what was
    found.
    """

    code = "denied"
    retry = True

    def __init__(self, digest: str, reason: str, detail: str) -> None:
        super().__init__(f"artifact {digest[:12]} is denied ({reason}): {detail}; the next build replaces it")
        self.digest = digest
        self.reason = reason
        self.detail = detail


class ConflictError(WeightStoreError, ValueError):
    """The key is published already with other content; the first artifact stays."""

    code = "conflict"

    def __init__(self, digest: str, published: str, offered: str) -> None:
        super().__init__(
            f"artifact {digest[:12]} is already published with other content ({published[:12]}, offered "
            f"{offered[:12]}); the key must name everything that the bytes depend on: change the key, or remove the "
            "old artifact"
        )
        self.digest = digest
        self.published = published
        self.offered = offered


class CoverageError(WeightStoreError, ValueError):
    """What a producer wrote is not every byte of every declared tensor exactly once."""

    code = "coverage"

    def __init__(self, tensor: str, detail: str) -> None:
        super().__init__(f"tensor {tensor!r}: {detail}; nothing was published")
        self.tensor = tensor
        self.detail = detail


class TensorError(WeightStoreError, TypeError):
    """A tensor that the store cannot keep (sparse, quantised, on no real device, of a data type without a name)."""

    code = "tensor"

    def __init__(self, tensor: str, detail: str) -> None:
        super().__init__(f"tensor {tensor!r}: {detail}")
        self.tensor = tensor
        self.detail = detail


class BusyError(WeightStoreError, TimeoutError):
    """Somebody else held a lock for longer than the caller was willing to wait; ``holder`` says who."""

    code = "busy"
    retry = True

    def __init__(self, what: str, holder: str, waited_s: float) -> None:
        super().__init__(f"waited {waited_s:.1f} s for {what}, held by {holder}; raise the limit or stop that process")
        self.what = what
        self.holder = holder
        self.waited_s = waited_s


class SpaceError(WeightStoreError, OSError):
    """An artifact does not fit: into its own limit, the store's limit, or the disk."""

    code = "space"
    retry = True

    def __init__(
        self, detail: str, *, needed_bytes: int | None, available_bytes: int | None, errno: int | None = None
    ) -> None:
        numbers = "" if needed_bytes is None else f" ({needed_bytes} bytes needed, {available_bytes} available)"
        super().__init__(f"{detail}{numbers}; prune the store, free space, or raise the limit")
        self.errno = errno
        self.detail = detail
        self.needed_bytes = needed_bytes
        self.available_bytes = available_bytes


class StorageError(WeightStoreError, OSError):
    """The operating system refused a file operation of the store; ``step`` names it, ``errno`` says why."""

    code = "storage"
    retry = True

    def __init__(self, step: str, path: str, errno: int | None) -> None:
        super().__init__(f"{step} failed on {path}: {os.strerror(errno) if errno else 'unknown error'}")
        self.step = step
        self.path = path
        self.errno = errno


class FileSystemError(WeightStoreError, OSError):
    """The store's root lies on a file system whose locks, mappings or renames are not those of a local one."""

    code = "filesystem"

    def __init__(self, path: str, file_system: str) -> None:
        super().__init__(
            f"{path} is on {file_system}, where locks and shared mappings are not those of a local file system; choose "
            f"a local disk or tmpfs, or set allow_file_system={file_system!r} if you know that it behaves"
        )
        self.path = path
        self.file_system = file_system


class DomainError(WeightStoreError, ValueError):
    """The root is not a weight store of this version, or not this user's."""

    code = "domain"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path} cannot be used as a weight store: {detail}")
        self.path = path
        self.detail = detail


class SourceChangedError(WeightStoreError, RuntimeError):
    """A source file changed while its digest was being taken."""

    code = "source"
    retry = True

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} changed while it was being hashed; wait until whoever writes it is done")
        self.path = path


class FolderError(WeightStoreError, ValueError):
    """A folder that is no diffusers or transformers model with safetensors weights."""

    code = "folder"

    def __init__(self, path: str, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path
        self.detail = detail


class BindingError(WeightStoreError, ValueError):
    """A module and an artifact do not fit each other; the module is as it was."""

    code = "binding"

    def __init__(self, problems: list[str]) -> None:
        shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        super().__init__(f"the module does not fit the artifact: {shown}")
        self.problems = problems


class ClosedError(WeightStoreError, ValueError):
    """A lease or a store was used after its ``close()``."""

    code = "closed"
