"""`omni-dlo plan` on real files."""

from __future__ import annotations

import json
import pathlib

import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file

from omni_dlo.cli import main


@pytest.fixture
def model_dir(tmp_path: pathlib.Path) -> pathlib.Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    for half in range(2):
        tensors = {
            f"model.layers.{index}.mlp.weight": torch.zeros(256, 256, dtype=torch.bfloat16)
            for index in range(4 * half, 4 * half + 4)
        }
        if half == 0:
            tensors["embed.weight"] = torch.zeros(100, 64)
        save_file(tensors, folder / f"model-0000{half + 1}-of-00002.safetensors")
    return folder


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, list(arguments))
    return result.exit_code, result.output


def test_a_table_and_a_picture(model_dir: pathlib.Path, tmp_path: pathlib.Path) -> None:
    trace = tmp_path / "trace.json"
    code, text = run("plan", str(model_dir), "--device-memory", "3GiB", "--h2d", "25GB/s", "--trace", str(trace))
    assert code == 0, text
    assert "8 blocks, largest 128 KiB" in text
    assert "best" in text
    assert "copy │" in text or "compute │" in text
    events = json.loads(trace.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}


def test_json_is_one_object(model_dir: pathlib.Path) -> None:
    code, text = run("plan", str(model_dir), "--device-memory", "3GiB", "--block-ms", "1", "--json")
    assert code == 0, text
    answer = json.loads(text)
    assert answer["blocks"] == 8
    assert answer["total_bytes"] == 8 * 131072 + 25600
    assert answer["best"]["resident_blocks"] == 0
    assert answer["rows"][0]["moved_bytes"] == 8 * 131072


def test_what_does_not_fit_fails_with_what_to_do(model_dir: pathlib.Path) -> None:
    code, text = run("plan", str(model_dir), "--device-memory", "100kB", "--reserve", "0")
    assert code == 1
    assert "do not fit" in text


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--device-memory", "lots"], 2, "24GiB"),
        (["--device-memory", "3GiB", "--h2d", "25"], 2, "25GB/s"),
        ([], 2, "--device-memory"),
        (["--device-memory", "1GiB"], 1, "above zero"),
    ],
)
def test_mistakes_are_answered(model_dir: pathlib.Path, arguments: list[str], code: int, said: str) -> None:
    got, text = run("plan", str(model_dir), *arguments)
    assert (got, said in text) == (code, True), text


def test_folders_that_are_none(tmp_path: pathlib.Path) -> None:
    assert "no safetensors file" in run("plan", str(tmp_path), "--device-memory", "3GiB")[1]
    (tmp_path / "x.safetensors").write_bytes(b"\xff" * 64)
    assert "impossible length" in run("plan", str(tmp_path), "--device-memory", "3GiB")[1]
    (tmp_path / "x.safetensors").write_bytes((4).to_bytes(8, "little") + b"nope")
    assert "damaged" in run("plan", str(tmp_path), "--device-memory", "3GiB")[1]


def test_version_and_help() -> None:
    assert run("--help")[0] == 0
    assert "omni-dlo" in run("--version")[1]
