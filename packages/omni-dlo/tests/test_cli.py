"""``omni-dlo plan`` on folders as diffusers and transformers write them, and on what is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file

from omni_dlo.cli import main


def weights(blocks: int, width: int) -> dict[str, torch.Tensor]:
    found = {"embed.weight": torch.zeros(8, width)}
    for index in range(blocks):
        found[f"layers.{index}.a.weight"] = torch.zeros(width, width)
        found[f"layers.{index}.b.weight"] = torch.zeros(width, dtype=torch.bfloat16)
    return found


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["plan", *arguments])


HARDWARE = ("--device-memory", "1MiB", "--h2d", "1MB/s", "--compute", "4MB/s")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    found = weights(6, 64)
    half = dict(list(found.items())[:5])
    save_file(half, folder / "model-00001-of-00002.safetensors")
    save_file({k: v for k, v in found.items() if k not in half}, folder / "model-00002-of-00002.safetensors")
    return folder


def test_a_folder_is_planned_as_a_person_reads_it(model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = run(str(model), *HARDWARE, "--trace", str(trace))
    assert done.exit_code == 0, done.output
    assert "layers: 6 blocks of up to 16.12 KiB" in done.output
    assert "best" in done.output
    assert "compute │" in done.output
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["name"] for event in events if event["ph"] == "X"} >= {f"layers.{i}" for i in range(6)}


def test_the_object_says_the_same(model: Path) -> None:
    done = run(str(model), *HARDWARE, "--json")
    found = json.loads(done.output)
    block = 64 * 64 * 4 + 64 * 2
    assert found["model"]["whole_bytes"] == 8 * 64 * 4 + 6 * block
    assert found["model"]["stacks"] == [{"name": "layers", "block_bytes": [block] * 6}]
    assert len(found["choices"]) == 7
    assert found["best"]["resident_blocks"] == 6
    assert found["best"]["stall_s"] == 0


def test_a_pipelines_transformer_streams_and_the_rest_comes_and_goes(tmp_path: Path) -> None:
    for name, blocks in (("transformer", 4), ("text_encoder", 2), ("vae", 0)):
        (tmp_path / name).mkdir()
        save_file(weights(blocks, 32), tmp_path / name / "model.safetensors")
    (tmp_path / "model_index.json").write_text("{}")
    done = run(str(tmp_path), *HARDWARE, "--json")
    found = json.loads(done.output)["model"]
    assert found["name"].endswith("/transformer")
    assert dict(found["on_demand"])["vae"] == 8 * 32 * 4
    chosen = json.loads(run(str(tmp_path), *HARDWARE, "--json", "--component", "text_encoder").output)["model"]
    assert len(chosen["stacks"][0]["block_bytes"]) == 2


def test_a_measured_block_time_sets_the_pace(model: Path) -> None:
    found = json.loads(run(str(model), *HARDWARE, "--json", "--block-ms", "10").output)
    assert found["best"]["compute_s"] == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device-memory", "1KiB", "--h2d", "1MB/s"), "needs at least"),
        (("--device-memory", "much", "--h2d", "1MB/s"), "is not a size"),
        (("--device-memory", "1GiB", "--h2d", "25GB"), "is not a rate"),
        ((*HARDWARE, "--component", "unet"), "no component 'unet'"),
        ((*HARDWARE, "--trace", "/proc/nowhere/trace.json"), "No such file"),
    ],
)
def test_what_cannot_be_planned_says_why(model: Path, arguments: tuple[str, ...], words: str) -> None:
    done = run(str(model), *arguments)
    assert done.exit_code == 1
    assert words in done.output


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("none", None, "holds no safetensors"),
        ("junk", b"junk", "no safetensors file"),
        ("huge", (1 << 60).to_bytes(8, "little"), "no safetensors file"),
        ("text", (2).to_bytes(8, "little") + b"[]", "no safetensors file"),
        ("cut", (50).to_bytes(8, "little") + b'{"a": {"dtype":', "no safetensors file"),
        ("flat", (49).to_bytes(8, "little") + b'{"a": {"dtype": "U8", "shape": [1], "offsets": 0}}'[:49], "no s"),
    ],
)
def test_damaged_folders_are_refused(tmp_path: Path, name: str, data: bytes | None, words: str) -> None:
    if data is not None:
        (tmp_path / f"{name}.safetensors").write_bytes(data)
    done = run(str(tmp_path), *HARDWARE)
    assert done.exit_code == 1
    assert words in done.output


def test_a_folder_that_is_not_there() -> None:
    done = run("nowhere", *HARDWARE)
    assert "is no folder" in done.output
