"""From a digest to a checked artifact; what fails a check is denied to every process and moved to quarantine."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from omni_hwr.artifact import Artifact, check, check_bytes, open_locked
from omni_hwr.config import Progress, ProgressCallback, StoreConfig, Verify
from omni_hwr.domain import Domain
from omni_hwr.errors import DeniedError
from omni_hwr.key import WeightKey
from omni_hwr.space import quarantine


def open_checked(
    domain: Domain, config: StoreConfig, digest: str, key: WeightKey | None, verify: Verify, report: ProgressCallback
) -> Artifact | None:
    """The artifact ``digest``, locked against removal, or None where there is none.

    Raises:
        DeniedError: A check failed; the artifact is in quarantine now.
        BusyError, StorageError: Nothing is said about the artifact.
    """
    dir_fd: int | None = None
    artifact: Artifact | None = None
    try:
        dir_fd = open_locked(domain, digest, config.lock_wait_s)
        if dir_fd is None:
            return None
        artifact = check(dir_fd, digest, key)
        check_bytes(artifact, verify, config.threads, _summed(report, artifact.manifest.nbytes))
    except BaseException as fault:
        try:
            if isinstance(fault, DeniedError):
                quarantine(domain, digest, dir_fd, config.quarantine_bytes, config.lock_wait_s)
        finally:
            if artifact is not None:
                artifact.close()
            elif dir_fd is not None:
                os.close(dir_fd)
        raise
    return artifact


def _summed(report: ProgressCallback, total: int) -> Callable[[int], None]:
    """Turn the sizes that hashing threads report into running totals."""
    lock = threading.Lock()
    done = 0

    def add(nbytes: int) -> None:
        nonlocal done
        with lock:
            done += nbytes
            report(Progress("verifying", done, total))

    return add
