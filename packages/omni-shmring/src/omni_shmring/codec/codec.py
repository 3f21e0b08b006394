"""The codec: one pass of msgspec with a hook on each side."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from omni_shmring.codec import exact as wire
from omni_shmring.codec.arrays import Unsupported, decode_array, encode_array, encode_scalar, record_identity
from omni_shmring.codec.exact import LEAF_READERS, ExactWriter, TooDeep
from omni_shmring.codec.frame import Buffer, Frame, Parts, Regions
from omni_shmring.codec.paths import first_path
from omni_shmring.codec.registry import Registry
from omni_shmring.errors import DecodeError, EncodeError

Ext = msgspec.msgpack.Ext


class _Broken:
    """Stands for a leaf that did not decode while its path is looked for."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Codec:
    """Encodes payloads to frames and decodes parts of frames. Not thread-safe: one at a time, or one each."""

    def __init__(self, types: tuple[type, ...] = (), exact: bool = True) -> None:
        self._registry = Registry(types)
        self._exact = exact
        self._plain: set[type] = set(wire.PLAIN_TYPES)
        self._encode = msgspec.msgpack.Encoder(enc_hook=self._on_leaf).encode
        self._decode = msgspec.msgpack.Decoder(ext_hook=self._on_extension).decode
        self._writer = ExactWriter(self._encode, self._plain, self._registry, self._on_leaf, self._on_long)
        self._regions = Regions()
        self._written: dict[int, Any] = {}
        self._alive: list[Any] = []
        self._parts: Parts | None = None
        self._read: dict[int, Any] = {}
        self._tensor_type: type | None = None
        self._encode_tensor: Callable[..., tuple[bytes, Any]] = _no_tensor
        self._decode_tensor: Callable[..., Any] | None = None

    def encode(self, payload: Any) -> Frame:
        """The frame of a payload. It borrows the payload's memory until :meth:`done`.

        Raises:
            EncodeError: something in it cannot travel; names the path.
        """
        for careful in (False, True):
            try:
                return self._frame(payload, careful)
            except Unsupported as error:
                path = first_path(payload, functools.partial(operator.is_, error.leaf))
                raise EncodeError(path, error.reason) from None
            except (TooDeep, RecursionError):
                raise EncodeError("payload", f"nested deeper than {wire.MAX_DEPTH} containers") from None
            except (OverflowError, UnicodeEncodeError):
                # An integer past 64 bits or a text with lone surrogates: found by encoding, so that the
                # many payloads without one pay nothing. A second, careful pass keeps it as it is.
                if careful or not self._exact:
                    break
        raise EncodeError("payload", "holds an integer past 64 bits or a text that is not valid UTF-8")

    def done(self) -> None:
        """Let go of the payload after its frame has been written."""
        if self._regions.used:
            self._regions = Regions()
            self._written = {}
            self._alive = []

    def decode(self, parts: Parts) -> Any:
        """The payload of a frame's parts.

        Raises:
            DecodeError: it does not decode; names the path inside the payload.
        """
        self._parts, self._read = parts, {}
        try:
            return self._decode(parts.meta)
        except Exception as error:
            # The boundary to bytes from another process: whatever a reader raises is a frame that
            # does not decode, reported with its path.
            raise self._decode_error(parts, error) from error
        finally:
            self._parts, self._read = None, {}

    def _frame(self, payload: Any, careful: bool) -> Frame:
        self.done()
        value = self._writer.rewrite(payload, careful) if self._exact else payload
        return Frame(self._encode(value), self._regions)

    # -- encoding

    def _on_leaf(self, leaf: Any) -> Any:
        """msgspec's hook, and the exact writer's: a leaf that msgpack has no form for."""
        written = self._written
        found = written.get(id(leaf))
        if found is not None:
            return found
        kind = type(leaf)
        if kind is self._tensor_type:
            record, keep = self._encode_tensor(self._regions, leaf, len(written))
            self._alive.append(keep)
            found = Ext(wire.TENSOR, record)
        elif kind is np.ndarray:
            found = Ext(wire.ARRAY, encode_array(self._regions, leaf, len(written)))
        else:
            return self._on_rare_leaf(leaf, kind)
        written[id(leaf)] = found
        return found

    def _on_rare_leaf(self, leaf: Any, kind: type) -> Any:
        if self._tensor_type is None and "torch" in sys.modules:
            from omni_shmring.codec import tensors

            self._encode_tensor = tensors.encode_tensor
            self._tensor_type = tensors.TENSOR
            self._plain.add(tensors.TENSOR)
            return self._on_leaf(leaf)
        if kind.__module__.startswith("PIL."):
            return self._on_image(leaf)
        if not self._exact:
            if isinstance(leaf, np.generic):
                return Ext(wire.NUMPY_SCALAR, encode_scalar(leaf))
            if kind is complex:
                return self._writer.rewrite(leaf, False)
        raise Unsupported(leaf, self._refusal(leaf))

    def _on_long(self, buffer: bytes | bytearray) -> Any:
        area, place = self._regions.add(memoryview(buffer).cast("B"), len(buffer))
        return Ext(wire.LONG, bytes([type(buffer) is bytearray, area]) + place.to_bytes(8, "little"))

    def _on_image(self, leaf: Any) -> Any:
        from omni_shmring.codec.images import encode_image

        head, pixels = encode_image(leaf)
        area, place = self._regions.add(memoryview(pixels), len(pixels))
        self._alive.append(pixels)
        return Ext(wire.IMAGE, self_contained(area, place, len(pixels)) + head)

    def _refusal(self, leaf: Any) -> str:
        kind = type(leaf)
        if "torch" in sys.modules and isinstance(leaf, sys.modules["torch"].Tensor):
            from omni_shmring.codec.tensors import refuse_subclass

            reason = refuse_subclass(leaf)
            if reason is not None:
                return reason
        if isinstance(leaf, np.ndarray):
            return (
                f"{kind.__name__}, a subclass of ndarray, which would arrive as a plain one; call numpy.asarray() first"
            )
        for base in (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float, complex):
            if isinstance(leaf, base):
                return (
                    f"{kind.__qualname__}, a subclass of {base.__name__}, which would arrive as a plain one; convert it"
                )
        return (
            f"{kind.__module__}.{kind.__qualname__} object; register it with TransportConfig(types=...) or convert it"
        )

    # -- decoding

    def _on_extension(self, code: int, data: memoryview) -> Any:
        """msgspec's hook: rebuild one extension."""
        parts = self._parts
        assert parts is not None
        if code == wire.TENSOR or code == wire.ARRAY:
            identity = record_identity(data)
            found = self._read.get(identity)
            if found is None:
                if code == wire.ARRAY:
                    found = decode_array(data, parts)
                else:
                    found = (self._decode_tensor or self._load_tensor_decoder())(data, parts)
                self._read[identity] = found
            return found
        reader = LEAF_READERS.get(code)
        if reader is not None:
            return reader(data)
        if code == wire.TUPLE:
            return tuple(self._decode(data))
        if code == wire.PAIRS:
            flat = self._decode(data)
            return dict(zip(flat[::2], flat[1::2], strict=True))
        if code == wire.SET:
            return set(self._decode(data))
        if code == wire.FROZENSET:
            return frozenset(self._decode(data))
        if code == wire.OBJECT:
            return self._registry.rebuild(*self._decode(data))
        if code == wire.ENUM:
            return self._registry.member(*self._decode(data))
        if code == wire.LONG:
            whole = self._region(parts, data[1], int.from_bytes(data[2:10], "little"), None)
            return bytearray(whole) if data[0] else bytes(whole)
        if code == wire.IMAGE:
            return self._image(parts, data)
        raise ValueError(f"extension {code} is unknown")

    def _load_tensor_decoder(self) -> Callable[..., Any]:
        try:
            from omni_shmring.codec.tensors import decode_tensor
        except ImportError:
            raise ValueError("a torch tensor needs the torch extra: pip install 'omni-shmring[torch]'") from None
        self._decode_tensor = decode_tensor
        return decode_tensor

    @staticmethod
    def _region(parts: Parts, area: int, place: int, nbytes: int | None) -> Buffer:
        if area == 1 and place < len(parts.large):
            found = parts.large[place]
            if nbytes is None or len(found) == nbytes:
                return found
        elif area == 0 and nbytes is not None and place + nbytes <= parts.small_bytes:
            start = parts.small_at + place
            return parts.small[start : start + nbytes]
        raise ValueError(f"there is no region {place} of area {area} and {nbytes} bytes")

    def _image(self, parts: Parts, data: memoryview) -> Any:
        try:
            from omni_shmring.codec.images import decode_image
        except ImportError:
            raise ValueError("a PIL image needs the image extra: pip install 'omni-shmring[image]'") from None
        area, place, nbytes = data[0], int.from_bytes(data[1:9], "little"), int.from_bytes(data[9:17], "little")
        return decode_image(msgspec.msgpack.decode(data[17:]), self._region(parts, area, place, nbytes))

    def _decode_error(self, parts: Parts, error: Exception) -> DecodeError:
        """Decode once more with a marker in place of what fails, and look for the marker."""
        hook = self._on_extension

        def forgiving(code: int, data: memoryview) -> Any:
            try:
                if code in (wire.TUPLE, wire.SET, wire.FROZENSET):
                    return tuple(decoder.decode(data))
                return hook(code, data)
            except Exception as fault:  # noqa: BLE001 (the same boundary: any fault of any reader is this leaf's)
                return _Broken(str(fault) or type(fault).__name__)

        decoder = msgspec.msgpack.Decoder(ext_hook=forgiving)
        self._parts, self._read = parts, {}
        reason = str(error) or type(error).__name__
        try:
            payload = decoder.decode(parts.meta)
        except Exception:  # noqa: BLE001 (not even msgpack: there is no path to name, the first error is reported)
            return DecodeError("payload", reason)
        found: list[_Broken] = []

        def broken(leaf: object) -> bool:
            if isinstance(leaf, _Broken):
                found.append(leaf)
            return bool(found)

        path = first_path(payload, broken)
        return DecodeError(path, found[0].reason if found else reason)


def self_contained(area: int, place: int, nbytes: int) -> bytes:
    """A reference to a region that carries its own size."""
    return bytes([area]) + place.to_bytes(8, "little") + nbytes.to_bytes(8, "little")


def _no_tensor(*arguments: Any) -> tuple[bytes, Any]:
    raise AssertionError("a tensor before torch has been met")
