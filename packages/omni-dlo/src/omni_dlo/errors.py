"""Every fault this package raises, as one small tree.

Errors carry the names they speak of as fields and subclass the builtin that a caller would catch anyway.
"""

from __future__ import annotations

__all__ = [
    "ComponentPolicyError",
    "ComponentPolicyTypeError",
    "DeviceUnavailableError",
    "DistributedWeightError",
    "DivergenceError",
    "GradModeError",
    "LeaseMismatchError",
    "ModuleChangedError",
    "OffloadError",
    "OffloadStateError",
    "PeerFaultError",
    "PlanError",
    "RegistrationError",
    "ScheduleError",
    "ShardedReadError",
    "SimulatedHazardError",
]


class OffloadError(Exception):
    """Anything this package refuses or cannot do."""


class OffloadStateError(OffloadError, RuntimeError):
    """An operation that the offloader's present state forbids (attach twice, use after close)."""


class PlanError(OffloadError, ValueError):
    """A plan, a size or a model folder that cannot be offloaded as asked."""


class ComponentPolicyError(OffloadError, ValueError):
    """A ``components`` mapping with a key or value that is refused.

    Attributes:
        key: The offending key as text.
    """

    def __init__(self, key: object, reason: str) -> None:
        self.key = key
        super().__init__(f"components[{key!r}]: {reason}")


class ComponentPolicyTypeError(OffloadError, TypeError):
    """A ``components`` argument, key or value of the wrong type.

    Attributes:
        key: The offending key, or None where it is the whole argument.
    """

    def __init__(self, key: object, reason: str) -> None:
        self.key = key
        super().__init__(f"components[{key!r}]: {reason}" if key is not None else f"components {reason}")


class DeviceUnavailableError(OffloadError, RuntimeError):
    """The device asked for does not exist in this process."""


class GradModeError(OffloadError, RuntimeError):
    """A streamed block was called while autograd records.

    Attributes:
        block: Name of the block.
    """

    def __init__(self, block: str) -> None:
        self.block = block
        super().__init__(
            f"block {block!r} was called while autograd records; its weights live in buffers that the next block "
            "overwrites, so call the model under torch.no_grad() or torch.inference_mode()"
        )


class ModuleChangedError(OffloadError, RuntimeError):
    """The module was changed, while attached, in a way that cannot be followed.

    Attributes:
        name: The module or tensor.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"{name}: {reason}")


class LeaseMismatchError(OffloadError, ValueError):
    """A lease lacks a tensor of the module, or has it in another shape or dtype.

    Attributes:
        name: The tensor.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"lease tensor {name!r}: {reason}")


class DistributedWeightError(OffloadError, TypeError):
    """A parameter is already sharded by FSDP, HSDP or tensor parallelism.

    Attributes:
        name: The parameter.
    """

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        super().__init__(f"parameter {name!r}: {reason}")


class ScheduleError(OffloadError, RuntimeError):
    """Blocks are nested more deeply than there are buffers."""


class DivergenceError(OffloadError, RuntimeError):
    """Ranks of one all-gather group ask for different blocks.

    Attributes:
        block: The block this rank asked for.
        peers: Per rank, the name of the block it asked for.
    """

    def __init__(self, block: str, peers: tuple[str, ...]) -> None:
        self.block = block
        self.peers = peers
        asked = ", ".join(f"rank {rank}: {name}" for rank, name in enumerate(peers))
        super().__init__(
            f"ranks diverged at block {block!r} ({asked}); every rank must run the same blocks in the same order"
        )


class PeerFaultError(OffloadError, RuntimeError):
    """Another rank raised inside a block, or did not answer in time.

    Attributes:
        rank: The rank, or None where it is not known which one is missing.
        block: The block in which it raised, or that this rank waited for.
    """

    def __init__(self, rank: int | None, block: str, reason: str) -> None:
        self.rank = rank
        self.block = block
        who = "a peer" if rank is None else f"rank {rank}"
        super().__init__(f"{who}, block {block!r}: {reason}")


class ShardedReadError(OffloadError, RuntimeError):
    """A whole-tensor read of a parameter that each rank holds only a part of.

    Attributes:
        name: The parameter.
    """

    def __init__(self, name: str, operation: str) -> None:
        self.name = name
        super().__init__(
            f"{operation} on {name!r}: each rank holds only a shard of this tensor between uses; read it inside "
            "`with offloader.gathered():`, which all ranks must enter"
        )


class RegistrationError(OffloadError, RuntimeError):
    """A host mapping could not be registered with the device.

    Attributes:
        reason: One of ``budget``, ``capability``, ``failed``, ``timeout``, ``rollback``.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = reason
        super().__init__(f"registration refused ({reason}): {detail}")


class SimulatedHazardError(OffloadError, AssertionError):
    """The simulated device saw a race that a real device would have shown as wrong numbers.

    Attributes:
        kind: ``overwrite``, ``freed-in-use`` or ``freed-twice``.
    """

    def __init__(self, kind: str, detail: str) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {detail}")
