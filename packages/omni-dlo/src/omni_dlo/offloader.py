"""The facade: attach a module or a pipeline, run it, detach it."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from torch import nn

from omni_dlo.attachment import Attachment, Target
from omni_dlo.binding import bind, unbind
from omni_dlo.capture import capture
from omni_dlo.components import decide_roles
from omni_dlo.config import OffloadConfig
from omni_dlo.devices import open_device
from omni_dlo.devices.base import Device
from omni_dlo.discovery import discover, resolve
from omni_dlo.errors import OffloadStateError, PlanError
from omni_dlo.layout import round_up
from omni_dlo.lease import Lease
from omni_dlo.measure import measure
from omni_dlo.pipeline import Pipeline, PipelineLayout, read_pipeline
from omni_dlo.placement import place
from omni_dlo.report import Explanation, OffloadStats, chrome_trace, explain_placement

__all__ = ["Offloader"]


class Offloader:
    """Streams the blocks of ``module`` from the host while earlier ones compute.

    As a context manager it attaches on entry and closes on exit. Between, the module is called as always, under
    ``torch.no_grad()`` or ``torch.inference_mode()``, from one thread.

    Args:
        module: Any module with stacks of blocks.
        config: See :class:`OffloadConfig`.
        lease: Where the weights lie (see :class:`~omni_dlo.lease.Lease`); :meth:`close` closes it. The module's own
            tensors are left alone, may be on the meta device, and are back after :meth:`detach`.

    Raises:
        PlanError: No stack of blocks was found, or the plan names what is not there.
        DeviceUnavailableError: ``config.device`` is not there.
    """

    def __init__(self, module: nn.Module, config: OffloadConfig, *, lease: Lease | None = None) -> None:
        stacks = resolve(module, config.plan) if config.plan is not None else discover(module)
        if not stacks:
            raise PlanError(
                f"{type(module).__name__} has no stack of alike blocks; name one with OffloadPlan(block_stacks=...)"
            )
        decide_roles({}, config.components)
        self._set_up(PipelineLayout((Target("", module, tuple(stacks)),), (), ()), config, lease)

    @classmethod
    def for_pipeline(cls, pipe: Pipeline, config: OffloadConfig, *, lease: Lease | None = None) -> Self:
        """Offload every module of a diffusers pipeline (anything with ``.components``).

        Models with stacks of blocks stream and share the rotating buffers; encoders stream without resident blocks;
        autoencoders are loaded before use. ``config.components`` and ``config.plan`` change that.

        Raises:
            PlanError: Nothing streams, or the plan names what is not there.
            ComponentPolicyError: ``config.components`` names what may not be named.
        """
        self = cls.__new__(cls)
        self._set_up(read_pipeline(pipe, config), config, lease)
        return self

    def _set_up(self, layout: PipelineLayout, config: OffloadConfig, lease: Lease | None) -> None:
        self._targets = layout.targets
        self._on_demand = layout.on_demand
        self._roles = layout.roles
        self._config = config
        self._lease = lease
        self._device: Device = open_device(config.device)
        self._attachment: Attachment | None = None
        self._closed = False
        self._stranded = False

    @property
    def attached(self) -> bool:
        """Whether the module is offloaded now."""
        return self._attachment is not None

    def attach(self) -> Self:
        """Move everything to its place. Either it succeeds whole or the module is as it was.

        Raises:
            OffloadStateError: Attached already, closed, or the module belongs to another offloader.
        """
        if self._closed:
            raise OffloadStateError("this offloader is closed; make a new one")
        if self._attachment is not None:
            raise OffloadStateError("this offloader is attached already")
        self._attachment = Attachment(self._targets, self._config, self._device, self._lease, self._on_demand)
        return self

    def detach(self) -> None:
        """Bring every tensor home and take everything off the module. Does nothing when not attached."""
        attachment, self._attachment = self._attachment, None
        if attachment is not None:
            try:
                attachment.detach()
            finally:
                self._stranded = self._stranded or attachment.sources.stranded

    def close(self) -> None:
        """Detach for good and close the lease. May be called again."""
        if self._closed:
            return
        self._closed = True
        try:
            self.detach()
        finally:
            if self._lease is not None and not self._stranded:
                self._lease.close()
            elif self._lease is not None:
                warnings.warn(
                    "the lease stays open: part of its mapping is, or may become, registered with the device",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def __enter__(self) -> Self:
        if self._attachment is None:
            self.attach()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def refresh(self) -> None:
        """Drop every copy on the device, after host weights were changed where torch does not count it (``.data``)."""
        attachment = self._require()
        attachment.engine.drain()
        if attachment.streamer is not None:
            attachment.streamer.invalidate()

    @contextmanager
    def gathered(self) -> Iterator[None]:
        """Whole tensors for ``state_dict()``, ``save_pretrained`` and ``deepcopy`` where each rank holds a shard.

        A collective: every rank enters it, and none calls the model within. Elsewhere it does nothing, because
        parameters are whole anyway. What is read inside stays valid after.

        Raises:
            PeerFaultError: Another rank does not take part in time.
        """
        attachment = self._require()
        swaps = [swap for home in attachment.sharded for swap in home.whole()]
        bind(swaps)
        try:
            yield
        finally:
            unbind(swaps)

    def stats(self) -> OffloadStats:
        """Counts since attach.

        Raises:
            OffloadStateError: Not attached.
        """
        attachment = self._require()
        streamer = attachment.streamer
        measured = measure(self._device, attachment.engine.spans, streamer.spans if streamer else [])
        return OffloadStats(
            block_runs=streamer.runs if streamer else 0,
            copies=attachment.engine.copies,
            moved_bytes=attachment.engine.moved_bytes,
            late_copies=streamer.late if streamer else 0,
            resident_bytes=attachment.resident_bytes,
            buffer_bytes=attachment.slot_bytes,
            extra_bytes=attachment.extra_bytes,
            pinned_bytes=attachment.sources.pinned_bytes,
            stall_s=measured.stall_s if self._config.trace else None,
            overlap=measured.overlap if self._config.trace else None,
        )

    def timeline(self, path: str | pathlib.Path | None = None) -> str:
        """Copies and compute so far as a Chrome trace (open in Perfetto); written to ``path`` where given.

        Raises:
            OffloadStateError: Not attached, or ``trace`` is off.
        """
        attachment = self._require()
        if not self._config.trace:
            raise OffloadStateError("the timeline needs OffloadConfig(trace=True)")
        streamer = attachment.streamer
        measured = measure(self._device, attachment.engine.spans, streamer.spans if streamer else [])
        text = chrome_trace(measured.spans)
        if path is not None:
            pathlib.Path(path).write_text(text)
        return text

    def explain(self) -> Explanation:
        """What streams, what stays on the device and why, with bytes; works before attach too."""
        attachment = self._attachment
        stacks = [stack for target in self._targets for stack in target.stacks]
        if attachment is not None:
            placement, host = attachment.placement, attachment.sources.why
        else:
            tensors = [t for target in self._targets for t in capture(target.module, target.name)]
            placement = place(tensors, stacks, self._config.resident_blocks, self._config.plan)
            host = "not attached yet"
        sizes = [sum(round_up(t.nbytes, 256) for t in b.tensors) for b in placement.blocks if not b.resident]
        return explain_placement(
            placement,
            {stack.name: stack.why for stack in stacks},
            device=self._device.name,
            host=host,
            buffers=len(attachment.slots) if attachment is not None else min(self._config.buffers, len(sizes)),
            buffer_bytes=attachment.slots[0].buffer.numel()
            if attachment and attachment.slots
            else max(sizes, default=0),
            components=self._component_lines(),
        )

    def _component_lines(self) -> Sequence[str]:
        return [f"{item.name}: {item.why}" for item in self._roles]

    def _require(self) -> Attachment:
        if self._attachment is None:
            raise OffloadStateError("this offloader is not attached")
        return self._attachment
