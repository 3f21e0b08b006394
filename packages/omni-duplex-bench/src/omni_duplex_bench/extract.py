"""Unpacks dataset archives: nothing leaves the folder, it appears whole, and concurrent starts share one result."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from pathlib import Path, PurePosixPath

from filelock import FileLock

from omni_duplex_bench.errors import DatasetError, UnsafeArchiveError

MAX_MEMBERS = 1_000_000
MAX_BYTES = 1024**4


def dataset_cache() -> Path:
    """Where archives are unpacked: ``$XDG_CACHE_HOME/omni-duplex-bench`` or ``~/.cache/omni-duplex-bench``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "omni-duplex-bench"


def extract(archive: Path, cache: Path) -> Path:
    """The folder with the archive's content, unpacked once for each archive (by path, size and time of change).

    Raises:
        UnsafeArchiveError: If a member is absolute, climbs with ``..``, or is a link or device. Nothing is kept.
        DatasetError: If it is no readable tar file.
    """
    info = archive.stat()
    identity = f"{archive.resolve()}|{info.st_size}|{info.st_mtime_ns}"
    final = cache / hashlib.sha256(identity.encode()).hexdigest()[:24]
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / f"{final.name}.lock"):
        if final.is_dir() and not final.is_symlink():
            return final
        work = Path(tempfile.mkdtemp(prefix=f"{final.name}.", dir=cache))
        try:
            _unpack(archive, work)
            work.chmod(0o755)
            os.rename(work, final)
        except BaseException:
            shutil.rmtree(work, ignore_errors=True)
            raise
    return final


def _unpack(archive: Path, folder: Path) -> None:
    try:
        with tarfile.open(archive) as tar:
            total = 0
            for count, member in enumerate(tar):
                total += member.size
                if count >= MAX_MEMBERS or total > MAX_BYTES:
                    raise DatasetError(f"{archive}: more than {MAX_MEMBERS} members or {MAX_BYTES} bytes")
                _unpack_member(archive, tar, member, folder)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DatasetError(f"{archive}: cannot be unpacked: {error}") from error


def _unpack_member(archive: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute():
        raise UnsafeArchiveError(archive, member.name, "an absolute path")
    if ".." in name.parts:
        raise UnsafeArchiveError(archive, member.name, "it climbs out with ..")
    if not (member.isreg() or member.isdir()):
        kind = "a link" if member.issym() or member.islnk() else "a device or pipe"
        raise UnsafeArchiveError(archive, member.name, kind)
    target = folder / name
    # No member is a link, so no folder made here can lead outside; the check holds against a race all the same.
    if not Path(os.path.realpath(target.parent)).is_relative_to(os.path.realpath(folder)):
        raise UnsafeArchiveError(archive, member.name, "its folder leads outside")
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    if source is None:
        raise UnsafeArchiveError(archive, member.name, "no plain file")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with source, os.fdopen(os.open(target, flags, 0o644), "wb") as out:
        shutil.copyfileobj(source, out, 1024 * 1024)
