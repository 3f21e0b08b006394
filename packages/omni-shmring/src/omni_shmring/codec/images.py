"""PIL images (the ``image`` extra). Imported when the first image comes along."""

from __future__ import annotations

import msgspec
from PIL import Image

from omni_shmring.codec.arrays import Unsupported

_MODES = frozenset({"1", "L", "P", "RGB", "RGBA", "RGBX", "CMYK", "YCbCr", "LAB", "HSV", "I", "F", "LA", "PA", "La",
                    "RGBa", "I;16", "I;16L", "I;16B"})  # fmt: skip


def encode_image(image: Image.Image) -> tuple[bytes, bytes]:
    """(head, pixels) of an image; its pixels, mode and palette travel, file format and metadata do not.

    Raises:
        Unsupported: a mode without plain pixels.
    """
    if image.mode not in _MODES:
        raise Unsupported(image, f"PIL image of mode {image.mode}; convert it first")
    palette: bytes | None = None
    palette_mode = ""
    if image.palette is not None and image.mode in ("P", "PA"):
        palette_mode = image.palette.mode
        palette = bytes(image.palette.palette)
    head = msgspec.msgpack.encode([image.mode, *image.size, palette_mode, palette])
    return head, image.tobytes()


def decode_image(head: list[object], pixels: bytes | bytearray | memoryview) -> Image.Image:
    """The image of a head and pixels. Raises ValueError and its kin for what is none."""
    mode, width, height, palette_mode, palette = head
    if mode not in _MODES or not isinstance(mode, str) or not isinstance(width, int) or not isinstance(height, int):
        raise ValueError(f"no image of mode {mode!r}")
    image = (
        Image.frombytes(mode, (width, height), bytes(pixels)) if width and height else Image.new(mode, (width, height))
    )
    if isinstance(palette, bytes):
        image.putpalette(palette, str(palette_mode))
    return image
