"""The contenders of compare.py: each attaches to a model and says how it is taken off again."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from omni_dlo import OffloadConfig, Offloader
from omni_dlo.devices import CpuDevice


class SeparateCpu(CpuDevice):
    """The CPU treated as a device with memory of its own: packed copies and swaps as on an accelerator."""

    name = "cpu (separate memory)"
    unified = False


@dataclass(frozen=True)
class Contender:
    """``attach`` makes ``model`` offloaded and returns what takes it off."""

    name: str
    how: str
    attach: Callable[[nn.Module], Callable[[], None]]


def omni_dlo(device: str | CpuDevice) -> Callable[[nn.Module], Callable[[], None]]:
    def attach(model: nn.Module) -> Callable[[], None]:
        return Offloader(model, OffloadConfig(device=device)).attach().close

    return attach


def diffusers_group(model: nn.Module) -> Callable[[], None]:
    from diffusers.hooks import apply_group_offloading

    cpu = torch.device("cpu")
    apply_group_offloading(
        model, onload_device=cpu, offload_device=cpu, offload_type="block_level", num_blocks_per_group=1
    )
    return lambda: None


def accelerate_hooks(model: nn.Module) -> Callable[[], None]:
    from accelerate import cpu_offload

    cpu_offload(model, execution_device=torch.device("cpu"))
    return lambda: None


def contenders() -> tuple[list[Contender], list[str]]:
    """Those that are installed, and the reasons of those that are not."""
    found = [
        Contender("omni-dlo", "device='cpu': copies every block from the module's own tensors", omni_dlo("cpu")),
        Contender(
            "omni-dlo packed", "the path of an accelerator: one packed copy, then swaps", omni_dlo(SeparateCpu())
        ),
    ]
    missing = []
    peers = (
        (
            "diffusers",
            "group offloading",
            "block_level, onload and offload on the CPU: hooks run, bytes stay",
            diffusers_group,
        ),
        ("accelerate", "hooks", "cpu_offload to execution_device cpu: hooks set every tensor", accelerate_hooks),
    )
    for package, what, how, attach in peers:
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(f"{package}: not installed")
        else:
            found.append(Contender(f"{package} {what}", how, attach))
    return found, missing
