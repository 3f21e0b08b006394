"""Reads a pipeline: its modules, what each does, and the stacks in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from torch import nn

from omni_dlo.attachment import Target
from omni_dlo.components import ComponentRole, Role, decide_roles, role_of
from omni_dlo.config import OffloadConfig
from omni_dlo.discovery import Stack, discover, resolve
from omni_dlo.errors import PlanError
from omni_dlo.plan import OffloadPlan

__all__ = ["Pipeline", "PipelineLayout", "read_pipeline"]


@runtime_checkable
class Pipeline(Protocol):
    """What a diffusers pipeline offers."""

    @property
    def components(self) -> Mapping[str, object]:
        """Its parts by name; those that are modules are looked at."""


@dataclass(frozen=True)
class PipelineLayout:
    """Targets that stream or stay, components on demand, and every component's role."""

    targets: tuple[Target, ...]
    on_demand: tuple[tuple[str, nn.Module], ...]
    roles: tuple[ComponentRole, ...]


def read_pipeline(pipe: Pipeline, config: OffloadConfig) -> PipelineLayout:
    """Decide what each module of ``pipe`` does. Nothing moves.

    Raises:
        PlanError: No component streams, or the plan names what is not there.
        ComponentPolicyError: ``config.components`` is refused.
    """
    modules: dict[str, nn.Module] = {}
    for name, part in pipe.components.items():
        if isinstance(part, nn.Module) and all(part is not other for other in modules.values()):
            modules[name] = part
    stacks = {name: _stacks(name, module, config.plan) for name, module in modules.items()}
    on_demand = config.plan.on_demand if config.plan is not None else ()
    for name in on_demand:
        if name not in modules:
            raise PlanError(f"the plan loads {name!r} on demand, which the pipeline does not have")
    roles: dict[str, Role] = {name: role_of(name, bool(stacks[name]), on_demand) for name in modules}
    decided = decide_roles(roles, config.components)
    if not any(item.role == "streamed" for item in decided):
        raise PlanError("no component of the pipeline has a stack of blocks to stream; name one in OffloadPlan")
    targets = []
    for item in decided:
        if item.role == "on_demand":
            continue
        found = stacks[item.name] if item.role != "whole" else ()
        if item.role == "encoder":
            found = tuple(replace(stack, encoder=True) for stack in found)
        targets.append(Target(item.name, modules[item.name], found))
    return PipelineLayout(
        tuple(targets), tuple((i.name, modules[i.name]) for i in decided if i.role == "on_demand"), decided
    )


def _stacks(name: str, module: nn.Module, plan: OffloadPlan | None) -> tuple[Stack, ...]:
    """Stacks of one component, with the component's name in front of theirs."""
    if plan is None or not (plan.block_stacks or plan.encoder_stacks):
        found = discover(module)
    else:
        prefix = f"{name}."
        inner = OffloadPlan(
            block_stacks=tuple(s.removeprefix(prefix) for s in plan.block_stacks if s.startswith(prefix)),
            encoder_stacks=tuple(s.removeprefix(prefix) for s in plan.encoder_stacks if s.startswith(prefix)),
        )
        found = resolve(module, inner)
    return tuple(
        Stack(
            f"{name}.{stack.name}", tuple((f"{name}.{block}", m) for block, m in stack.blocks), stack.encoder, stack.why
        )
        for stack in found
    )
