"""Keeps paths that come from data inside the folder they belong to."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from omni_duplex_bench.errors import DatasetError


def confined(root: Path, relative: str) -> Path:
    """``root / relative``, which must lie below ``root`` after every symbolic link is followed.

    Raises:
        DatasetError: If it is absolute, holds ``..``, or leads outside through a link.
    """
    parts = PurePosixPath(relative.replace("\\", "/"))
    if not relative or parts.is_absolute() or ".." in parts.parts or "\0" in relative:
        raise DatasetError(f"the path {relative!r} leaves its folder")
    path = root / parts
    if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root)):
        raise DatasetError(f"the path {relative!r} leads outside its folder through a link")
    return path
