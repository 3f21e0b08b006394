"""One ring as its producer has it: the file, the longer index, the files of frames outside it."""

from __future__ import annotations

import os
from collections.abc import Callable

from omni_shmring import layout, names
from omni_shmring.inbox import Inbox
from omni_shmring.mapping import Mapping, create, unlink
from omni_shmring.spares import Spares
from omni_shmring.writer import RingWriter


class OutRing:
    """One ring this process fills."""

    def __init__(
        self,
        directory: int,
        name: names.RingName,
        ring_bytes: int,
        inbox: Inbox,
        lives: Callable[[int], bool],
    ) -> None:
        """Create the ring's file and make it known to the stage. Raises NoSpaceError."""
        self.name = name
        self._directory = directory
        geometry = layout.Geometry.for_ring(ring_bytes)
        scratch = names.scratch_file(name.instance, f"ring.{name.dest}.{name.serial:x}")
        self.mapping = create(directory, scratch, geometry.file_bytes, f"a ring of {ring_bytes:,} bytes")
        self._chunks: list[Mapping] = []
        self.writer = RingWriter(
            self.mapping.view,
            geometry,
            grow=self._grow,
            receiver_lives=lambda entry: (holder := inbox.holder(entry)) != 0 and lives(holder),
            instance_lives=lives,
        )
        self.writer.format(name.instance)
        # Only now does it get its name: nobody sees a ring without its header.
        os.rename(scratch, str(name), src_dir_fd=directory, dst_dir_fd=directory)
        self.quarter_bytes = geometry.data_bytes // 4
        self.degraded = False
        """Whether it is only what there was room for."""
        self.segments = 0
        self.spares = Spares(directory, name)

    def _grow(self, number: int) -> memoryview:
        mapping = create(self._directory, self.name.chunk(number), layout.CHUNK_BYTES, "a longer index")
        self._chunks.append(mapping)
        return mapping.view

    @property
    def idle(self) -> bool:
        """Whether nothing of it is pending or being copied."""
        return not self.writer.pending and not self.writer.limbo

    def remove(self, state: int) -> None:
        """Close the ring for its receivers, and its files for everybody."""
        self.writer.set_state(state)
        for publication in (*self.writer.pending.values(), *self.writer.limbo):
            if publication.kind == layout.IN_SEGMENT:
                unlink(self._directory, self.name.segment(publication.place))
        for number in range(len(self._chunks)):
            unlink(self._directory, self.name.chunk(number))
        self.spares.remove()
        unlink(self._directory, str(self.name))
        self.let_go()

    def let_go(self) -> None:
        """Unmap."""
        self.writer.close_views()
        self.spares.let_go()
        for mapping in (*self._chunks, self.mapping):
            mapping.close()
        self._chunks.clear()
