from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from omni_serve.errors import StartupError
from omni_serve.voice import weights
from omni_serve.voice.weights import WeightFile, locate, require_modules, verified, verify


def test_a_changed_file_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"weights")
    good = WeightFile("somewhere", "model.bin", 7, hashlib.sha256(b"weights").hexdigest())
    assert verify(good, path) == path
    path.write_bytes(b"weighty")
    with pytest.raises(StartupError, match=r"model\.bin.*reinstall somewhere"):
        verify(good, path)


def test_a_missing_package_names_the_install_line() -> None:
    with pytest.raises(StartupError, match=r'pip install "omni-serve\[voice\]"'):
        require_modules(("omni_serve", "no_such_voice_part"))
    with pytest.raises(StartupError, match="no_such_voice_part"):
        locate(WeightFile("no_such_voice_part", "x", 1, ""))
    with pytest.raises(StartupError, match="without nothing"):
        locate(WeightFile("omni_serve", "nothing", 1, ""))


@pytest.mark.parametrize("file", [*weights.WHISPER, weights.SMOLLM2, *weights.JOE], ids=lambda f: Path(f.path).name)
def test_the_installed_weights_are_the_pinned_ones(file: WeightFile) -> None:
    if weights.missing_modules((file.package,)):
        pytest.skip(f"needs the voice extra ({file.package})")
    path = verified(file)
    assert path.stat().st_size == file.size_bytes
