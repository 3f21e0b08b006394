"""Fingerprints by which two snapshots compare masked values without showing them.

A plain digest of a short secret can be guessed by trying; so fingerprints are keyed (HMAC-SHA-256, RFC 2104) with a
random key that stays on the machine. Snapshots made with the same key compare; whoever only gets a snapshot cannot
test a guess. Bytes are written apart (``3f:a2:…``), so that no fragment of a fingerprint reads like one of a value.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

KEY_BYTES = 32


def default_key_path() -> Path:
    """Where the machine's comparison key is kept (XDG base directory specification, state home)."""
    state = os.environ.get("XDG_STATE_HOME")
    folder = Path(state) if state else Path.home() / ".local" / "state"
    return folder / "omni-envinventory" / "compare.key"


class Fingerprinter:
    """Makes fingerprints with one key.

    Args:
        key: The key; ``load`` reads or makes the machine's.
    """

    __slots__ = ("_key", "key_id")

    def __init__(self, key: bytes) -> None:
        if len(key) < 16:
            raise ValueError("a comparison key needs at least 16 bytes")
        self._key = key
        self.key_id = self._digest(b"key id", 4)

    def __repr__(self) -> str:
        return f"Fingerprinter(key_id={self.key_id!r})"

    @classmethod
    def load(cls, path: Path) -> Fingerprinter:
        """Read the key, or make one that only its owner may read.

        Raises:
            OSError: It can be neither read nor made.
            ValueError: The file holds no key.
        """
        try:
            return cls(path.read_bytes())
        except FileNotFoundError:
            pass
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as stream:
            stream.write(secrets.token_bytes(KEY_BYTES))
        try:
            os.link(temporary, path)  # whoever comes second uses the first one's key
        except FileExistsError:
            pass
        finally:
            temporary.unlink()
        return cls(path.read_bytes())

    def _digest(self, content: bytes, size: int) -> str:
        digest = hmac.new(self._key, content, hashlib.sha256).digest()[:size]
        return ":".join(f"{byte:02x}" for byte in digest)

    def of(self, name: str, value: str) -> str:
        """The fingerprint of a variable's value; the name is part of it, so equal values of two names do not show."""
        return self._digest(
            name.encode("utf-8", "surrogateescape") + b"\0" + value.encode("utf-8", "surrogateescape"), 16
        )
