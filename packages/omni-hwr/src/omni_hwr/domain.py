"""The store's directories: created, checked and held open; every later step goes through these descriptors."""

from __future__ import annotations

import json
import os
import stat
import uuid
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

from omni_hwr import fsio
from omni_hwr.config import StoreConfig
from omni_hwr.errors import DomainError, StorageError
from omni_hwr.filesystem import check_file_system
from omni_hwr.locks import directory_lock, try_lock

DOMAIN_SCHEMA = "omni-hwr/domain/1"
FOLDERS = ("artifacts", "staging", "locks", "quarantine", "source-digests", "pins")
_MAX_DOMAIN_BYTES = 4096


class Domain:
    """Open descriptors of a store's root and its folders.

    Attributes:
        root: The root as given.
        id: Random identity of this store, made when it was created.
        file_system: Type of the file system that it lies on.
        artifacts, staging, locks, quarantine, source_digests, pins: Directory descriptors.
    """

    def __init__(self, root: Path, root_fd: int, folders: dict[str, int], identity: str, file_system: str) -> None:
        self.root = root
        self.id = identity
        self.file_system = file_system
        self._root_fd = root_fd
        self._folders = folders
        self.artifacts = folders["artifacts"]
        self.staging = folders["staging"]
        self.locks = folders["locks"]
        self.quarantine = folders["quarantine"]
        self.source_digests = folders["source-digests"]
        self.pins = folders["pins"]

    @classmethod
    def open(cls, root: Path, config: StoreConfig) -> Domain:
        """Open the store at ``root``, creating what is missing.

        Raises:
            FileSystemError: The file system is not a local one.
            DomainError: A directory is a symlink, another user's or open to others, or the schema is another one.
            StorageError: The system refuses a step.
        """
        file_system = check_file_system(root, config.allow_file_system)
        with fsio.step("mkdir", str(root)):
            root.mkdir(mode=fsio.DIR_MODE, parents=True, exist_ok=True)
        opened: dict[str, int] = {}
        root_fd = _open_checked(str(root), None, str(root))
        try:
            with directory_lock(root_fd, f"the store {root}", config.lock_wait_s):
                for name in FOLDERS:
                    try:
                        os.mkdir(name, fsio.DIR_MODE, dir_fd=root_fd)
                    except FileExistsError:
                        pass
                    except OSError as fault:
                        raise StorageError("mkdir", f"{root}/{name}", fault.errno) from fault
                    opened[name] = _open_checked(name, root_fd, f"{root}/{name}")
                identity = _identity(root, root_fd, file_system)
        except BaseException:
            for fd in (root_fd, *opened.values()):
                os.close(fd)
            raise
        return cls(root, root_fd, opened, identity, file_system)

    def lock(self, limit_s: float) -> AbstractContextManager[None]:
        """The store's lock: held for moments, around renames, reservations and removals."""
        return directory_lock(self._root_fd, f"the store {self.root}", limit_s)

    def free_bytes(self) -> int:
        """Space that this user can still write on the file system."""
        with fsio.step("statvfs", str(self.root)):
            status = os.fstatvfs(self._root_fd)
        return status.f_bavail * status.f_frsize

    def remove_temporaries(self) -> None:
        """Remove half-written records of dead processes; to be called with the store's lock held."""
        folders = [self._root_fd]
        with fsio.step("open", "source-digests"):
            fd = fsio.open_dir("source-digests", self._root_fd)
        try:
            if try_lock(fd, shared=False):
                folders.append(fd)
            for folder in folders:
                for name in fsio.names_in(folder, str(self.root)):
                    if name.startswith("."):
                        fsio.remove_file(name, folder)
        finally:
            os.close(fd)

    def close(self) -> None:
        """Close the descriptors; harmless when repeated."""
        folders, self._folders = self._folders, {}
        for fd in folders.values():
            os.close(fd)
        if folders:
            os.close(self._root_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _open_checked(name: str, dir_fd: int | None, shown: str) -> int:
    try:
        fd = fsio.open_dir(name, dir_fd)
    except NotADirectoryError as fault:
        raise DomainError(shown, "it is a symlink or no directory") from fault
    except OSError as fault:
        raise StorageError("open", shown, fault.errno) from fault
    status = os.fstat(fd)
    problem = None
    if status.st_uid != os.geteuid():
        problem = f"it belongs to user {status.st_uid}, not to {os.geteuid()}"
    elif stat.S_IMODE(status.st_mode) & 0o077:
        problem = f"others may enter it (mode {stat.S_IMODE(status.st_mode):04o}); set it to 0700"
    if problem is not None:
        os.close(fd)
        raise DomainError(shown, problem)
    return fd


def _identity(root: Path, root_fd: int, file_system: str) -> str:
    try:
        data = fsio.read_small("domain.json", root_fd, _MAX_DOMAIN_BYTES)
    except FileNotFoundError:
        table = {"schema": DOMAIN_SCHEMA, "id": str(uuid.uuid4()), "file_system": file_system}
        fsio.replace_file("domain.json", json.dumps(table).encode("ascii") + b"\n", root_fd)
        with fsio.step("fsync", str(root)):
            os.fsync(root_fd)
        return str(table["id"])
    except OSError as fault:
        raise StorageError("open", f"{root}/domain.json", fault.errno) from fault
    try:
        found = json.loads(data or b"")
        if found["schema"] != DOMAIN_SCHEMA:
            raise DomainError(str(root), f"its schema is {found['schema']!r}, this version reads {DOMAIN_SCHEMA!r}")
        return str(found["id"])
    except (ValueError, KeyError, TypeError) as fault:
        if isinstance(fault, DomainError):
            raise
        raise DomainError(str(root), "domain.json is damaged; remove it, the artifacts may be fine") from fault
