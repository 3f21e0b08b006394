"""What page-locked host memory really costs. Pure arithmetic."""

from __future__ import annotations

__all__ = ["pinned_bytes_taken"]


def pinned_bytes_taken(nbytes: int, *, allocator: str = "caching") -> int:
    """Bytes of page-locked memory that holding ``nbytes`` takes.

    torch's caching host allocator rounds a request up to the next power of two (pytorch/pytorch#95823); ``exact``
    is for memory that this package allocates plainly and registers with the device itself.

    Raises:
        ValueError: A negative size, or an allocator other than ``caching`` and ``exact``.
    """
    if nbytes < 0:
        raise ValueError(f"a size cannot be {nbytes}")
    if allocator == "exact":
        return nbytes
    if allocator != "caching":
        raise ValueError(f"allocator must be 'caching' or 'exact', not {allocator!r}")
    return 1 << (nbytes - 1).bit_length() if nbytes else 0
