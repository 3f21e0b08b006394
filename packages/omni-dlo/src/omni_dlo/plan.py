"""What is streamed, what may stay, what comes on demand: declared by name, checked against nothing but itself."""

from __future__ import annotations

from dataclasses import dataclass

from omni_dlo.errors import PlanError

__all__ = ["OffloadPlan", "spread"]


@dataclass(frozen=True, kw_only=True)
class OffloadPlan:
    """A declaration for one model or pipeline.

    Names are dotted paths from the root; for a pipeline they begin with the component (``transformer.blocks``).

    Attributes:
        block_stacks: Containers whose children are streamed blocks, in the order they run.
        resident_stacks: Those of ``block_stacks`` from which ``resident_blocks`` may be taken; None means all.
        encoder_stacks: Further stacks, of encoders: streamed, and never resident.
        on_demand: Pipeline components that are loaded whole before use and leave after it.
    """

    block_stacks: tuple[str, ...] = ()
    resident_stacks: tuple[str, ...] | None = None
    encoder_stacks: tuple[str, ...] = ()
    on_demand: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse names that contradict one another.

        Raises:
            PlanError: A stack named twice, or a resident stack that is no block stack.
        """
        stacks = self.block_stacks + self.encoder_stacks
        for name in stacks:
            if not isinstance(name, str) or not name:
                raise PlanError(f"a stack is named by a dotted path, not {name!r}")
            if stacks.count(name) > 1:
                raise PlanError(f"stack {name!r} is declared twice")
        for name in self.resident_stacks or ():
            if name not in self.block_stacks:
                raise PlanError(f"resident stack {name!r} is not among block_stacks {self.block_stacks}")

    def may_stay(self, stack: str) -> bool:
        """Whether blocks of ``stack`` may be resident."""
        if stack in self.encoder_stacks:
            return False
        return self.resident_stacks is None or stack in self.resident_stacks


def spread(count: int, chosen: int) -> tuple[int, ...]:
    """``chosen`` of ``count`` positions, as even as they go and never the first where there is a choice.

    Resident blocks between streamed ones give the copies time; a run of them at one end would not.
    """
    if chosen >= count:
        return tuple(range(count))
    return tuple((2 * index + 1) * count // (2 * chosen) for index in range(chosen))
