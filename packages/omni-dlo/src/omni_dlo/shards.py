"""How a packed block is cut into one shard per rank and moved in chunks. Pure arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from omni_dlo.errors import PlanError

__all__ = ["Chunk", "ShardPlan", "cut"]


@dataclass(frozen=True)
class Chunk:
    """Bytes ``[start, start + length)`` of the block, of which every rank holds ``part`` bytes, the last padded.

    Attributes:
        start: First byte in the block.
        length: Bytes of the block in this chunk.
        part: Bytes per rank, ceil(length / ranks).
        at: Where this chunk's part begins in a rank's shard.
    """

    start: int
    length: int
    part: int
    at: int

    def mine(self, rank: int) -> tuple[int, int]:
        """The bytes of the block, from and to, that rank ``rank`` holds of this chunk; empty when all is padding."""
        first = min(rank * self.part, self.length)
        last = min(first + self.part, self.length)
        return self.start + first, self.start + last


@dataclass(frozen=True)
class ShardPlan:
    """A block of ``nbytes`` over ``ranks``.

    Attributes:
        shard_bytes: Bytes each rank keeps, ceil(nbytes / ranks).
        buffer_bytes: Bytes of the gathered block with the last chunk's padding.
    """

    nbytes: int
    ranks: int
    chunks: tuple[Chunk, ...]

    @property
    def shard_bytes(self) -> int:
        return sum(chunk.part for chunk in self.chunks)

    @property
    def buffer_bytes(self) -> int:
        return self.chunks[-1].start + self.chunks[-1].part * self.ranks if self.chunks else 0

    @property
    def largest_part(self) -> int:
        return max((chunk.part for chunk in self.chunks), default=0)


def cut(nbytes: int, ranks: int, chunk_bytes: int) -> ShardPlan:
    """Cut ``nbytes`` into chunks of about ``chunk_bytes``; all but the last divide evenly among the ranks.

    Raises:
        PlanError: Less than one rank, or a chunk smaller than the group.
    """
    if ranks < 1 or chunk_bytes < ranks:
        raise PlanError(f"cannot cut chunks of {chunk_bytes} bytes for {ranks} ranks")
    step = chunk_bytes // ranks * ranks
    chunks = []
    at = 0
    for start in range(0, nbytes, step):
        length = min(step, nbytes - start)
        part = -(-length // ranks)
        chunks.append(Chunk(start, length, part, at))
        at += part
    return ShardPlan(nbytes, ranks, tuple(chunks))
