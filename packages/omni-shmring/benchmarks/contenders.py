"""The transports that are compared, each as an engine would use it: a tree with tensors in, a tree with tensors out.

Every receiver ends up with writable torch tensors of its own, and blocks until a message is there. Those that move
bytes only (zmq, iceoryx2, a pipe) are given the leanest common packing: msgpack with the tensors' raw bytes.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import pickle
import secrets
import struct
from collections.abc import Callable
from multiprocessing import connection, shared_memory
from typing import Any, Protocol

import msgpack
import torch

from omni_shmring import Transport, TransportConfig

Tree = Any


class Contender(Protocol):
    """One transport between two processes."""

    name: str

    def sender(self) -> Callable[[Tree], None]:
        """In the sending process: a function that sends one message."""

    def receiver(self) -> Callable[[], Tree]:
        """In the receiving process: a function that blocks for one message."""

    def close(self) -> None:
        """In each process, at the end."""


def pack_tree(tree: Tree) -> tuple[bytes, list[memoryview]]:
    """msgpack of the tree with each tensor as (index, dtype, shape), and the tensors' bytes."""
    buffers: list[memoryview] = []

    def default(leaf: Any) -> Any:
        array = leaf.numpy()
        buffers.append(memoryview(array).cast("B"))
        body = struct.pack(f"<I{leaf.ndim}Q", len(buffers) - 1, *leaf.shape)
        return msgpack.ExtType(1, array.dtype.str.encode().ljust(4) + body)

    return msgpack.packb(tree, default=default), buffers


def unpack_tree(meta: bytes | memoryview, buffers: list[Any]) -> Tree:
    """The inverse: tensors are views of the (writable) buffers."""

    def ext_hook(code: int, data: bytes) -> Any:
        index, *shape = struct.unpack(f"<I{(len(data) - 8) // 8}Q", data[4:])
        return torch.frombuffer(buffers[index], dtype=_DTYPES[data[:4]]).view(shape)

    return msgpack.unpackb(meta, ext_hook=ext_hook, strict_map_key=False)


_DTYPES = {b"<i8 ": torch.int64, b"<f4 ": torch.float32, b"|b1 ": torch.bool}


def join(meta: bytes, buffers: list[memoryview]) -> list[Any]:
    """One length-prefixed message as a list of parts, each tensor on a multiple of 64 bytes."""
    head = struct.pack(f"<II{len(buffers)}Q", len(meta), len(buffers), *[len(b) for b in buffers]) + meta
    parts: list[Any] = [head, bytes(-len(head) % 64)]
    for buffer in buffers:
        parts += [buffer, bytes(-len(buffer) % 64)]
    return parts


def split(whole: Any) -> Tree:
    """The tree of a joined message; tensors are views of ``whole``."""
    view = memoryview(whole)
    meta_bytes, count = struct.unpack_from("<II", view)
    sizes = struct.unpack_from(f"<{count}Q", view, 8)
    at = 8 + 8 * count
    meta, end = view[at : at + meta_bytes], at + meta_bytes
    buffers = []
    for size in sizes:
        end += -end % 64
        buffers.append(view[end : end + size])
        end += size
    return unpack_tree(meta, buffers)


class Shmring:
    """This package."""

    def __init__(self, exact: bool = True) -> None:
        self.name = "omni-shmring" if exact else "omni-shmring exact=False"
        self._config = TransportConfig(exact=exact)
        self._scope = f"bench-{secrets.token_hex(4)}"
        self._transport: Transport | None = None

    def sender(self) -> Callable[[Tree], None]:
        tx = self._transport = Transport("source", scope=self._scope, config=self._config)
        number = iter(range(1 << 60))
        return lambda tree: tx.put("sink", f"req:{next(number)}", tree) and None

    def receiver(self) -> Callable[[], Tree]:
        rx = self._transport = Transport("sink", scope=self._scope, config=self._config)
        number = iter(range(1 << 60))
        return lambda: rx.wait("source", f"req:{next(number)}").payload  # type: ignore[union-attr]

    def empty_poll(self) -> Callable[[], object]:
        rx = self._transport
        assert rx is not None
        return lambda: rx.get("source", "nothing")

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close(linger_s=5)


class PicklePipe:
    """pickle protocol 5 with out-of-band buffers over a multiprocessing Pipe."""

    name = "pickle-5 over Pipe"

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)

    def sender(self) -> Callable[[Tree], None]:
        writer = self._writer

        def send(tree: Tree) -> None:
            buffers: list[pickle.PickleBuffer] = []
            data = pickle.dumps(as_numpy(tree), protocol=5, buffer_callback=buffers.append)
            writer.send_bytes(struct.pack("<I", len(buffers)) + data)
            for buffer in buffers:
                writer.send_bytes(buffer.raw())

        return send

    def receiver(self) -> Callable[[], Tree]:
        reader = self._reader

        def receive() -> Tree:
            data = reader.recv_bytes()
            buffers = [bytearray(reader.recv_bytes()) for _ in range(struct.unpack_from("<I", data)[0])]
            return as_torch(pickle.loads(memoryview(data)[4:], buffers=buffers))  # noqa: S301 (a peer, in a benchmark)

        return receive

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class TorchQueue:
    """torch.multiprocessing.Queue: tensors through shared memory by handle."""

    name = "torch.multiprocessing.Queue"

    def __init__(self) -> None:
        self._queue: Any = torch.multiprocessing.get_context("spawn").Queue()

    def sender(self) -> Callable[[Tree], None]:
        return self._queue.put  # type: ignore[no-any-return]

    def receiver(self) -> Callable[[], Tree]:
        return self._queue.get  # type: ignore[no-any-return]

    def close(self) -> None:
        self._queue.close()
        self._queue.join_thread()


class Zmq:
    """zmq PUSH/PULL over ipc: one msgpack message, or multipart with the tensors' memory uncopied."""

    def __init__(self, multipart: bool) -> None:
        self.name = "zmq multipart zero-copy" if multipart else "zmq PUSH/PULL msgpack"
        self._multipart = multipart
        self._path = f"ipc://@shmring-bench-{secrets.token_hex(6)}"
        self._context: Any = None

    def _socket(self, kind: int) -> Any:
        import zmq

        self._context = zmq.Context()
        socket = self._context.socket(kind)
        socket.set_hwm(0)
        return socket

    def sender(self) -> Callable[[Tree], None]:
        import zmq

        push = self._socket(zmq.PUSH)
        push.connect(self._path)

        def send(tree: Tree) -> None:
            meta, buffers = pack_tree(tree)
            if self._multipart:
                # Uncopied by zmq; the bytes are copied here once, as a put that returns an owned tensor must.
                push.send_multipart([meta, *[bytearray(b) for b in buffers]], copy=False)
            else:
                push.send(b"".join(join(meta, buffers)))

        return send

    def receiver(self) -> Callable[[], Tree]:
        import zmq

        pull = self._socket(zmq.PULL)
        pull.bind(self._path)

        def receive() -> Tree:
            if not self._multipart:
                return split(bytearray(pull.recv()))
            first, *rest = pull.recv_multipart(copy=False)
            return unpack_tree(first.buffer, [bytearray(frame.buffer) for frame in rest])

        return receive

    def close(self) -> None:
        if self._context is not None:
            self._context.destroy(linger=0)


class Iceoryx:
    """iceoryx2 publish/subscribe on slices of bytes, with an event to block on."""

    name = "iceoryx2"

    def __init__(self) -> None:
        self._service = f"shmring-bench-{secrets.token_hex(6)}"
        self._keep: list[Any] = []

    def _services(self) -> tuple[Any, Any]:
        import iceoryx2 as iox2

        iox2.set_log_level(iox2.LogLevel.Error)
        node = iox2.NodeBuilder.new().create(iox2.ServiceType.Ipc)
        data = (
            node.service_builder(iox2.ServiceName.new(self._service))
            .publish_subscribe(iox2.Slice[ctypes.c_uint8])
            .subscriber_max_buffer_size(64)
            .open_or_create()
        )
        event = node.service_builder(iox2.ServiceName.new(self._service)).event().open_or_create()
        self._keep += [node, data, event]
        return data, event

    def sender(self) -> Callable[[Tree], None]:
        data, event = self._services()
        publisher = data.publisher_builder().initial_max_slice_len(8 << 20).create()
        notifier = event.notifier_builder().create()
        self._keep += [publisher, notifier]

        def send(tree: Tree) -> None:
            parts = join(*pack_tree(tree))
            sample = publisher.loan_slice_uninit(sum(map(len, parts)))
            view, at = sample.payload().as_memory_view().cast("B"), 0
            for part in parts:
                view[at : at + len(part)] = part
                at += len(part)
            sample.assume_init().send()
            notifier.notify()

        return send

    def receiver(self) -> Callable[[], Tree]:
        data, event = self._services()
        subscriber = data.subscriber_builder().create()
        listener = event.listener_builder().create()
        self._keep += [subscriber, listener]

        def receive() -> Tree:
            while (sample := subscriber.receive()) is None:
                listener.blocking_wait()
            whole = bytearray(sample.payload().as_memory_view().cast("B"))
            sample.delete()
            return split(whole)

        return receive

    def close(self) -> None:
        self._keep.clear()


class SegmentPerKey:
    """One multiprocessing.shared_memory segment a message, its name through a pipe."""

    name = "one segment per key"

    def __init__(self) -> None:
        self._reader, self._writer = multiprocessing.Pipe(duplex=False)

    def sender(self) -> Callable[[Tree], None]:
        writer: connection.Connection = self._writer

        def send(tree: Tree) -> None:
            parts = join(*pack_tree(tree))
            segment = shared_memory.SharedMemory(create=True, size=sum(map(len, parts)))
            at = 0
            for part in parts:
                segment.buf[at : at + len(part)] = part
                at += len(part)
            writer.send_bytes(segment.name.encode())
            segment.close()

        return send

    def receiver(self) -> Callable[[], Tree]:
        reader = self._reader

        def receive() -> Tree:
            segment = shared_memory.SharedMemory(name=reader.recv_bytes().decode())
            whole = bytearray(segment.buf)
            segment.close()
            segment.unlink()
            return split(whole)

        return receive

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


def as_numpy(tree: Tree) -> Tree:
    """Tensors as numpy arrays, which pickle moves out of band (tensors it does not)."""
    if isinstance(tree, dict):
        return {key: as_numpy(value) for key, value in tree.items()}
    return tree.numpy() if isinstance(tree, torch.Tensor) else tree


def as_torch(tree: Tree) -> Tree:
    """The inverse."""
    if isinstance(tree, dict):
        return {key: as_torch(value) for key, value in tree.items()}
    return torch.from_numpy(tree) if type(tree).__module__ == "numpy" else tree


def all_contenders() -> tuple[list[Contender], dict[str, str]]:
    """The contenders that run here, and why each other one does not."""
    found: list[Contender] = [Shmring(), Shmring(exact=False), PicklePipe(), TorchQueue(), SegmentPerKey()]
    missing: dict[str, str] = {}
    for module, makers in (("zmq", (lambda: Zmq(False), lambda: Zmq(True))), ("iceoryx2", (Iceoryx,))):
        try:
            __import__(module)
            found += [make() for make in makers]  # type: ignore[operator]
        except ImportError as error:
            missing[module] = str(error)
    return found, missing
