"""The directory of one scope: opened only when it can be trusted, emptied by the last one who leaves.

Opening, closing and reaping hold ``flock`` on the directory, so that nobody tears down what another just began to
use. Everything else goes on without it: while an instance's life file stands, the directory stays.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator

from omni_shmring import names
from omni_shmring.errors import NoSpaceError, ScopeError
from omni_shmring.liveness import Pulse
from omni_shmring.mapping import unlink

LOCK_PATIENCE_S = 10.0
"""How long opening or closing waits for another process's opening or closing."""


class ScopeDirectory:
    """An open, trusted scope directory."""

    def __init__(self, root: str, scope: str, *, create: bool = True) -> None:
        """Open, creating it first unless told not to.

        Raises:
            ScopeError: somebody else's directory, a symlink, a mode that lets others in, or no such directory.
        """
        self.scope = scope
        self.path = os.path.join(root, names.scope_directory(scope, os.geteuid()))
        self.fd = _open_trusted(self.path, create)

    def close(self) -> None:
        """Let go of the directory itself; files are the business of whoever owns them."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def listing(self) -> list[str]:
        """The names of the files in it."""
        return os.listdir(self.fd)

    @contextlib.contextmanager
    def locked(self, patience_s: float = LOCK_PATIENCE_S) -> Iterator[bool]:
        """Hold the scope's lock. Yields False when it was not to be had in time (only with ``patience_s`` 0)."""
        deadline = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if patience_s == 0:
                    yield False
                    return
                if time.monotonic() > deadline:
                    raise ScopeError(
                        self.path,
                        f"kept locked by another process for {patience_s:g} s (is one stopped while opening?)",
                    ) from None
                time.sleep(0.002)
        try:
            yield True
        finally:
            fcntl.flock(self.fd, fcntl.LOCK_UN)

    def still_there(self) -> bool:
        """Whether the path still leads to this directory (it may have been removed before the lock was had)."""
        try:
            now = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        mine = os.fstat(self.fd)
        return (now.st_dev, now.st_ino) == (mine.st_dev, mine.st_ino)

    def instances(self) -> dict[int, bool]:
        """Every instance that something here belongs to, and whether it lives."""
        found: dict[int, bool] = {}
        lives = {life[1]: life[0] for life in map(names.parse_life, self.listing()) if life}
        for name in self.listing():
            owner = names.owner_of(name)
            if owner is None or owner in found:
                continue
            stage = lives.get(owner)
            if stage is None:
                found[owner] = False
            else:
                with Pulse(self.fd, stage, owner) as pulse:
                    found[owner] = pulse.beats()
        return found

    def leftovers(self) -> list[str]:
        """Files of instances that are dead, and everything when none lives. Ask with the lock held."""
        alive = self.instances()
        if not any(alive.values()):
            return self.listing()
        return [name for name in self.listing() if (o := names.owner_of(name)) is not None and not alive.get(o, False)]

    def reap(self) -> list[str]:
        """Remove what dead instances left, and the directory when nothing lives in it. With the lock held."""
        removed = self.leftovers()
        # Life files go last: while one stands, its instance's other files are known to be a dead one's.
        for name in sorted(removed, key=lambda n: n.startswith("life.")):
            unlink(self.fd, name)
        # Not empty means that somebody lives here; gone means that somebody else removed it.
        with contextlib.suppress(OSError):
            os.rmdir(self.path)
        return removed


def scopes_of_user(root: str) -> list[str]:
    """Paths of all scope directories of this user below a root."""
    prefix = names.user_prefix(os.geteuid())
    try:
        return sorted(os.path.join(root, name) for name in os.listdir(root) if name.startswith(prefix))
    except FileNotFoundError:
        return []


def open_existing(path: str) -> ScopeDirectory | None:
    """A scope directory that already exists; None when it is gone. Raises ScopeError when it cannot be trusted."""
    scope = ScopeDirectory.__new__(ScopeDirectory)
    scope.scope, scope.path = "", path
    try:
        scope.fd = _open_trusted(path, create=False)
    except FileNotFoundError:
        return None
    return scope


def reap_others(root: str, own_path: str) -> None:
    """Remove what dead processes of this user left in other scopes; skip what is in use or not to be trusted."""
    for path in scopes_of_user(root):
        if path == own_path:
            continue
        try:
            other = open_existing(path)
        except ScopeError:
            continue  # refused when somebody opens that scope, with the reason; not ours to touch
        if other is None:
            continue
        try:
            with other.locked(0) as held:
                if held:
                    other.reap()
        finally:
            other.close()


def _open_trusted(path: str, create: bool) -> int:
    while True:
        if create:
            _make(path)
        try:
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            break
        except FileNotFoundError:
            # The last one out removed it between our making it and our opening it: make it again. A root that is
            # not there ends this in _make.
            if not create:
                raise
        except OSError as error:
            linked = os.path.islink(path)
            kind = "a symlink" if linked else f"not a directory that can be opened ({error.strerror})"
            raise ScopeError(path, f"is {kind}; remove it or choose another scope") from None
    found = os.fstat(fd)
    reason = None
    if found.st_uid != os.geteuid():
        reason = f"belongs to user {found.st_uid}, not to {os.geteuid()}; remove it or choose another scope"
    elif stat.S_IMODE(found.st_mode) & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        reason = f"has mode {mode:04o}, which lets other users in; it must be 0700"
    if reason is not None:
        os.close(fd)
        raise ScopeError(path, reason)
    return fd


def _make(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass  # whose it is is looked at when it is opened
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise NoSpaceError(f"the scope directory {path}", 4096, 0) from None
        raise ScopeError(path, f"cannot be created: {error.strerror}") from None
