"""What ranks tell each other before they gather a block, so that a rank that diverges is an error and not a hang."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from omni_dlo.errors import DivergenceError, OffloadStateError, PeerFaultError
from omni_dlo.streamer import Agreement

__all__ = ["GroupAgreement"]


class GroupAgreement(Agreement):
    """One small exchange on a gloo group beside the data group.

    Every rank sends one number for each block it is about to gather: the block's, or, once, that it raised in one.
    Ranks send equally often whatever happens, so after an error on all of them the next pass starts in step.

    Args:
        group: The data group; None is the default group.
        timeout_s: How long to wait for the others.

    Raises:
        OffloadStateError: ``torch.distributed`` is not initialised, or this process is not in the group.
    """

    def __init__(self, group: Any, timeout_s: float) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise OffloadStateError("transfer='allgather' needs torch.distributed.init_process_group first")
        self.group = group
        self.ranks = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        if self.rank < 0:
            raise OffloadStateError("this process is not in the all-gather group")
        members = dist.get_process_group_ranks(group if group is not None else dist.group.WORLD)
        self._timeout_s = timeout_s
        # Members alone make it, unless they are everybody: torch names groups made that way by their ranks, and a
        # second one of that name would meet the first one's rendezvous.
        self._control: Any = dist.new_group(
            members,
            timeout=dt.timedelta(seconds=timeout_s),
            backend="gloo",
            use_local_synchronization=self.ranks < dist.get_world_size(),
        )
        self._names: Sequence[str] = ()
        self._pending: tuple[Any, torch.Tensor] | None = None

    def know(self, names: Sequence[str], plan: int) -> None:
        """Learn the blocks' names, and make sure that every rank cut the same blocks (``plan`` is a checksum).

        Raises:
            DivergenceError: Another rank has other blocks.
        """
        self._names = names
        answers = self._exchange(plan, "attach")
        if len(set(answers)) > 1:
            raise DivergenceError("attach", tuple(f"plan {answer:08x}" for answer in answers))

    def before_fetch(self, index: int, name: str) -> None:
        answers = self._exchange(index, name)
        for rank, answer in enumerate(answers):
            if answer < 0:
                raise PeerFaultError(rank, self._name(-1 - answer), "it raised there; this pass cannot be completed")
        if len(set(answers)) > 1:
            raise DivergenceError(name, tuple(self._name(answer) for answer in answers))

    def fault(self, index: int) -> None:
        # Not waited for: the others may be a whole pass away from their next question.
        self._pending = self._send(-1 - index)

    def gather_host(self, part: torch.Tensor) -> torch.Tensor:
        """Every rank's ``part`` (uint8, equal sizes, host memory), one after the other.

        Raises:
            PeerFaultError: Another rank does not take part in time.
        """
        whole = torch.empty(self.ranks * part.numel(), dtype=torch.uint8)
        try:
            dist.all_gather_into_tensor(whole, part, group=self._control)
        except RuntimeError as error:
            raise PeerFaultError(None, "a whole-tensor read", f"not all ranks take part: {error}") from error
        return whole

    def close(self) -> None:
        """End the control group. May be called again."""
        if self._control is not None:
            control, self._control = self._control, None
            self._pending = None
            dist.destroy_process_group(control)

    def _name(self, index: int) -> str:
        return self._names[index] if 0 <= index < len(self._names) else f"#{index}"

    def _send(self, value: int) -> tuple[Any, torch.Tensor]:
        answers = torch.empty(self.ranks, dtype=torch.int64)
        mine = torch.tensor([value], dtype=torch.int64)
        return dist.all_gather_into_tensor(answers, mine, group=self._control, async_op=True), answers

    def _exchange(self, value: int, name: str) -> list[int]:
        try:
            if self._pending is not None:
                pending, self._pending = self._pending, None
                pending[0].wait()
            work, answers = self._send(value)
            work.wait()
        except RuntimeError as error:
            raise PeerFaultError(
                None, name, f"no answer from every rank within {self._timeout_s:g} s ({error})"
            ) from error
        return [int(answer) for answer in answers]
