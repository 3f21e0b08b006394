"""Components that are on the device only while one of their methods runs."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from torch import nn

from omni_dlo.cache_policy import may_keep_cache
from omni_dlo.devices.base import Device
from omni_dlo.patching import Patch, refuse_moves, report_device, wrap_method
from omni_dlo.stager import ModuleStager

__all__ = ["OnDemandComponent"]

METHODS = ("forward", "encode", "decode")
"""What pipelines call on an autoencoder or encoder."""


class OnDemandComponent:
    """Loads ``module`` when a method of it is called; it leaves when the outermost call ends, also by raising."""

    def __init__(self, name: str, module: nn.Module, device: Device) -> None:
        self.name = name
        self._device = device
        self._depth = 0
        self.stager = ModuleStager([module], device)
        self._patches: list[Patch] = []
        self._undo: Callable[[], None] = lambda: None
        if not device.unified:
            self._patches = [wrap_method(module, method, self._wrap) for method in METHODS if hasattr(module, method)]
            self._patches.append(refuse_moves(module, name, device.torch_device))
            self._undo = report_device(module, device.torch_device)

    def close(self) -> None:
        """Take it all off. May be called again."""
        while self._patches:
            self._patches.pop().undo()
        self._undo()
        self.stager.close()

    def _wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def used(*args: Any, **kwargs: Any) -> Any:
            if self._depth == 0:
                self.stager.load()
            self._depth += 1
            failed = True
            try:
                result = call(*args, **kwargs)
                failed = False
                return result
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._release(failed)

        return used

    def _release(self, failed: bool) -> None:
        try:
            self.stager.leave()
        except Exception as error:
            self._device.empty_cache()
            if not failed:
                raise
            warnings.warn(f"component {self.name!r} could not leave the device: {error}", RuntimeWarning, stacklevel=3)
            return
        if not may_keep_cache(self._device.memory()):
            self._device.empty_cache()
