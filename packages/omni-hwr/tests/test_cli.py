"""The command line as a user meets it, on real diffusers and transformers folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from omni_hwr import WeightKey, WeightStore
from omni_hwr.cli import main
from omni_hwr.cli_render import format_age, format_bytes

Weights = dict[str, torch.Tensor]
Run = Callable[..., Result]


@pytest.fixture
def run(root: Path) -> Run:
    def call(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, ["--root", str(root), *arguments])
        assert result.exit_code == code, result.output + result.stderr
        return result

    return call


@pytest.fixture
def pipeline(tmp_path: Path) -> Path:
    """A diffusers folder: one component in shards, one whole with a variant, one without weights."""
    folder = tmp_path / "tiny-pipeline"
    for name in ("transformer", "vae", "scheduler"):
        (folder / name).mkdir(parents=True)
        (folder / name / "config.json").write_text("{}")
    listed = {
        "_class_name": "Tiny",
        "transformer": ["diffusers", "T"],
        "vae": ["diffusers", "V"],
        "scheduler": ["d", "S"],
    }
    (folder / "model_index.json").write_text(json.dumps({**listed, "safety_checker": [None, None]}))
    shards = {"model-a.safetensors": {"x": torch.ones(4, 4)}, "model-b.safetensors": {"y": torch.zeros(3).bfloat16()}}
    for name, tensors in shards.items():
        save_file(tensors, folder / "transformer" / name)
    weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors}
    index = folder / "transformer" / "diffusion_pytorch_model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    save_file({"z": torch.arange(6.0)}, folder / "vae" / "diffusion_pytorch_model.safetensors")
    save_file({"z": torch.arange(6.0).half()}, folder / "vae" / "diffusion_pytorch_model.fp16.safetensors")
    return folder


def test_a_pipeline_from_import_to_rm(run: Run, pipeline: Path, tmp_path: Path) -> None:
    assert "no artifact is published yet" in run("ls").output
    lines = run("import", str(pipeline)).output.splitlines()
    assert [line.split()[1:3] for line in lines] == [["transformer", "built"], ["vae", "built"]]
    assert [line.split()[2] for line in run("import", str(pipeline)).output.splitlines()] == ["hit", "hit"]
    listing = run("ls").output
    assert "tiny-pipeline" in listing
    assert "2 artifacts" in listing
    transformer, vae = (line.split()[0] for line in lines)
    shown = run("show", transformer, "--tensors").output
    assert "omni-hwr-import/1" in shown
    assert "4×4" in shown
    assert "ok" in run("verify", "--all").output
    assert "would remove 2 artifacts" in run("prune", "--max-count", "0", "--dry-run").output
    run("pin", vae)
    assert "pinned" in run("ls").output
    assert "removed 1 artifacts" in run("prune", "--max-count", "0", "--yes").output
    run("pin", vae, "--off")
    target = tmp_path / "exported"
    assert "wrote" in run("export", vae, str(target)).output
    assert torch.equal(load_file(target / "model.safetensors")["z"], torch.arange(6.0))
    assert "add --yes" in run("rm", vae).output
    assert "removed" in run("rm", vae, "--yes").output
    assert "no artifact" in run("ls").output


def test_components_and_variants_are_chosen(run: Run, pipeline: Path) -> None:
    done = json.loads(
        run("--json", "import", str(pipeline), "--component", "vae", "--variant", "fp16", "--model", "m").output
    )
    assert [item["component"] for item in done] == ["vae"]
    (entry,) = json.loads(run("--json", "ls").output)
    assert entry["key"]["representation"] == "checkpoint-fp16"
    assert entry["key"]["model"] == "m"
    manifest = json.loads(run("--json", "show", entry["digest"][:6]).output)
    assert manifest["blobs"][0][1] == "F16"
    assert "has no component 'unet'" in run("import", str(pipeline), "--component", "unet", code=1).stderr


SAVE = """
import sys, transformers
config = transformers.LlamaConfig(
    vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
    tie_word_embeddings=True,
)
transformers.LlamaForCausalLM(config).save_pretrained(sys.argv[1], max_shard_size="4KB")
"""


@pytest.mark.slow
@pytest.mark.limit_s(300)
def test_a_transformers_model_saved_by_transformers(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="a real transformers folder needs transformers")
    folder = tmp_path / "llama"
    # In a process of its own: transformers leaves threads and caches behind.
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", SAVE, str(folder)], check=True, capture_output=True, env=environment)
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) > 1
    (item,) = json.loads(run("--json", "import", str(folder), "--revision", "r1").output)
    run("export", item["digest"], str(tmp_path / "out"))
    exported = load_file(tmp_path / "out" / "model.safetensors")
    saved = {name: tensor for shard in shards for name, tensor in load_file(shard).items()}
    assert set(exported) == set(saved)
    assert all(torch.equal(saved[name], tensor) for name, tensor in exported.items())


def test_export_gives_every_name_its_own_bytes_and_leaves_transients(
    run: Run, store: WeightStore, key: WeightKey, tmp_path: Path
) -> None:
    base = torch.randn(6, 4)
    store.publish(key, {"a": base, "tied": base, "t": base.t(), "e": torch.ones(1).expand(3)})
    run("export", key.digest, str(tmp_path / "out"))
    found = load_file(tmp_path / "out" / "model.safetensors")
    assert torch.equal(found["tied"], base)
    assert torch.equal(found["t"], base.t())
    assert found["e"].tolist() == [1, 1, 1]
    again = run("export", key.digest, str(tmp_path / "out"), code=1)
    assert "File exists" in again.stderr


def test_damage_is_told_and_fails(run: Run, store: WeightStore, key: WeightKey, weights: Weights, root: Path) -> None:
    store.publish(key, weights)
    (root / "artifacts" / key.digest / "extra").write_bytes(b"")
    assert "DENIED" in run("verify", "--all", code=1).output
    assert "no artifact" in run("show", key.digest, code=1).stderr


def test_a_leased_artifact_is_not_removed(run: Run, store: WeightStore, key: WeightKey, weights: Weights) -> None:
    store.publish(key, weights)
    with store.lease(key):
        assert "leased or gone" in run("rm", key.digest, "--yes", code=1).output
    run("rm", key.digest[:8], "--yes")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["prune"], 2, "say what to keep"),
        (["prune", "--max-bytes", "lots"], 2, "is no size"),
        (["prune", "--older-than", "soon"], 2, "is no duration"),
        (["prune", "--max-count", "1", "--yes", "--dry-run"], 2, "contradict"),
        (["verify"], 2, "--all"),
        (["show", "abc"], 1, "no artifact abc"),
        (["show", ""], 1, "no artifact"),
    ],
)
def test_mistakes_are_told_in_one_sentence(run: Run, arguments: list[str], code: int, words: str) -> None:
    result = run(*arguments, code=code)
    assert words in result.stderr
    assert "Traceback" not in result.stderr


def test_an_ambiguous_beginning_is_refused(run: Run, store: WeightStore, make_key: Callable[..., WeightKey]) -> None:
    for name in range(17):
        store.publish(make_key(str(name)), {"x": torch.ones(1)})
    first = [entry.digest[0] for entry in store.entries()]
    twice = next(letter for letter in first if first.count(letter) > 1)
    assert "give more letters" in run("show", twice, code=1).stderr


def test_help_and_version() -> None:
    assert "published once" in CliRunner().invoke(main, ["--help"]).output
    assert "0.1.0" in CliRunner().invoke(main, ["--version"]).output
    for command in ("ls", "show", "verify", "prune", "rm", "pin", "import", "export"):
        assert CliRunner().invoke(main, ["--root", "x", command, "--help"]).exit_code == 0


def test_sizes_and_ages_for_people() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1536, 3 << 30, 5 << 40)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "3.0 GiB",
        "5.0 TiB",
    ]
    assert [format_age(s) for s in (5, 120, 7200, 200_000)] == ["just now", "2m ago", "2h ago", "2d ago"]
