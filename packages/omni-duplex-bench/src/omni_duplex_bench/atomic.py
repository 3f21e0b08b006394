"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from omni_duplex_bench.errors import ArtifactError


def write_file(path: Path, data: bytes) -> None:
    """Write ``data`` beside ``path``, sync it, and move it into place.

    Raises:
        ArtifactError: If any step fails; what stood at ``path`` before is untouched and no temporary file is left.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _write_temporary(path, data)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        raise ArtifactError(error.errno, f"cannot write {path}: {error.strerror or error}") from error


def publish(folder: Path, files: Mapping[str, bytes], *, marker: str, stale: tuple[str, ...] = ()) -> None:
    """Publish a set of files, the ``marker`` (one of them) last: whoever sees the marker sees the whole set.

    All files are written and synced under temporary names first, so that a full disk leaves nothing of the set. Files
    called ``stale`` and an older marker go away before the first new one appears.

    Raises:
        ArtifactError: If any step fails; then none of the set is there.
    """
    order = [name for name in files if name != marker] + [marker]
    written: dict[str, Path] = {}
    moved: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in order:
            written[name] = _write_temporary(folder / name, files[name])
        for name in (marker, *stale):
            (folder / name).unlink(missing_ok=True)
        for name in order:
            os.replace(written[name], folder / name)
            moved.append(folder / name)
        _sync_folder(folder)
    except OSError as error:
        for leftover in (*written.values(), *moved):
            with contextlib.suppress(OSError):
                leftover.unlink(missing_ok=True)
        raise ArtifactError(error.errno, f"cannot publish {folder}: {error.strerror or error}") from error


def _write_temporary(path: Path, data: bytes) -> Path:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name.lstrip('.')}.", suffix=".part")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fchmod(out.fileno(), 0o644)
            os.fsync(out.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
