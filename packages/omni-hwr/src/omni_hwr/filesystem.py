"""Which file system a path is on, and whether its locks and mappings are those of a local one."""

from __future__ import annotations

import os
import re
from pathlib import Path

from omni_hwr.errors import FileSystemError, StorageError

LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "tmpfs", "overlay"})
"""File systems with local ``flock``, atomic ``rename`` and one page cache for all mappings of a file."""

_ESCAPE = re.compile(r"\\([0-7]{3})")


def file_system_of(path: str, mountinfo: str) -> str:
    """Type of the file system that ``path`` (absolute, resolved) is on, from the text of ``/proc/self/mountinfo``.

    Of several mounts over one another the last one counts. ``unknown`` where no mount covers the path.
    Format: proc_pid_mountinfo(5).
    """
    best, found = -1, "unknown"
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields = left.split()
        if not dash or len(fields) < 5 or not right:
            continue
        mount = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4])
        inside = path == mount or path.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= best:
            best, found = len(mount), right.split()[0]
    return found


def check_file_system(path: Path, allowed: str | None) -> str:
    """Type of the file system of ``path``, or of its nearest parent that exists.

    Raises:
        FileSystemError: It is not known to be local and is not the one that ``allowed`` names.
    """
    real = Path(os.path.realpath(path))
    while not real.exists() and real != real.parent:
        real = real.parent
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text(errors="surrogateescape")
    except OSError as fault:
        raise StorageError("read", "/proc/self/mountinfo", fault.errno) from fault
    found = file_system_of(str(real), mountinfo)
    if found not in LOCAL and found != allowed:
        raise FileSystemError(str(path), found)
    return found
