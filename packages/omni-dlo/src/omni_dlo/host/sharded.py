"""One shard of a block per rank, rebuilt on the device by all-gather, chunk by chunk."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from omni_dlo.capture import Unit, pack_bytes
from omni_dlo.devices.base import Device, Event, Stream
from omni_dlo.peers import GroupAgreement
from omni_dlo.shards import ShardPlan, cut

__all__ = ["GatherStage", "ShardedSource"]


class GatherStage:
    """Two device windows for shards on their way into a collective, and the stream the collectives run on.

    While one chunk is gathered from a window, the next chunk's shard is copied into the other.
    """

    def __init__(self, device: Device, group: Any, part_bytes: int) -> None:
        self.device = device
        self.group = group
        self.stream = device.new_stream("gather")
        self.nbytes = 2 * part_bytes
        self._windows = [device.empty(part_bytes, f"shard window {index}") for index in range(2)]
        self._gathered: list[Event] = [None, None]
        self._next = 0

    def gather(self, target: torch.Tensor, shard: torch.Tensor, copies: Stream, label: str) -> None:
        """Copy ``shard`` to a window on ``copies``, then gather every rank's into ``target`` on the gather stream."""
        index = self._next
        self._next = 1 - index
        window = self._windows[index][: shard.numel()]
        if self._gathered[index] is not None:
            self.device.wait(copies, self._gathered[index])
        self.device.copy(window, shard, copies, label)
        # This also orders the collective after whatever `copies` waited for: the last reader of `target`.
        self.device.wait(self.stream, self.device.record(copies))
        group = self.group
        self.device.gather(
            self.stream, lambda out: dist.all_gather_into_tensor(out, window, group=group), target, window, label
        )
        self._gathered[index] = self.device.record(self.stream)

    def close(self) -> None:
        """Release the windows; everything must have been drained. May be called again."""
        while self._windows:
            self.device.release(self._windows.pop())


class ShardedSource:
    """This rank's pinned shard of one unit."""

    whole = False

    def __init__(self, unit: Unit, device: Device, agreement: GroupAgreement, chunk_bytes: int) -> None:
        self.plan: ShardPlan = cut(unit.nbytes, agreement.ranks, chunk_bytes)
        self._agreement = agreement
        self.stage: GatherStage | None = None
        self.moved_bytes = self.plan.shard_bytes
        self.buffer_bytes = self.plan.buffer_bytes
        whole = pack_bytes(unit)
        self._shard = device.pinned(self.plan.shard_bytes).zero_()
        for chunk in self.plan.chunks:
            first, last = chunk.mine(agreement.rank)
            self._shard[chunk.at : chunk.at + last - first].copy_(whole[first:last])

    @property
    def pinned_bytes(self) -> int:
        """Bytes of the shard."""
        return self._shard.numel()

    def fill(self, buffer: torch.Tensor, stream: Stream, label: str) -> Stream:
        if self.stage is None:
            return stream
        for chunk in self.plan.chunks:
            target = buffer[chunk.start : chunk.start + chunk.part * self.plan.ranks]
            self.stage.gather(target, self._shard[chunk.at : chunk.at + chunk.part], stream, label)
        return self.stage.stream

    def leaves(self) -> list[torch.Tensor] | None:
        return None

    def packed(self) -> torch.Tensor:
        """Gather the whole unit on the host: every rank must call this in the same order."""
        whole = torch.empty(self.plan.buffer_bytes, dtype=torch.uint8)
        for chunk in self.plan.chunks:
            part = self._shard[chunk.at : chunk.at + chunk.part].contiguous()
            whole[chunk.start : chunk.start + chunk.part * self.plan.ranks] = self._agreement.gather_host(part)
        return whole
