"""What a user types, and the deployment it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from omni_serve.deploy.select import by_rules, kind_of, require_ready, select
from omni_serve.errors import StartupError


def test_nothing_means_the_voice() -> None:
    assert select(None, None).name == "voice"


def test_a_file_is_read_and_a_built_in_is_known_by_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("stages: [{name: a, kind: text}]\n")
    assert select(str(file), None).name == "mine"
    assert select("text", None).stages[0].backend == "llama"
    with pytest.raises(StartupError, match="names its own models"):
        select(str(file), tmp_path)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("model_index.json", '{"_class_name": "FluxPipeline"}', "image"),
        ("config.json", '{"architectures": ["LlamaForCausalLM"]}', "text"),
    ],
)
def test_a_model_folder_is_known_by_its_files(tmp_path: Path, name: str, text: str, kind: str) -> None:
    (tmp_path / name).write_text(text)
    assert kind_of(tmp_path) == kind
    stage = select(None, tmp_path).stages[0]
    assert stage.model == str(tmp_path)


@pytest.mark.parametrize("text", [None, "{", "[]", "{}"])
def test_a_folder_that_is_no_model_says_so(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(StartupError, match="no model folder"):
        kind_of(tmp_path)


def test_rules_take_the_place_of_every_language_model() -> None:
    assert [stage.backend for stage in by_rules(select(None, None)).stages] == ["whisper", "rules", "piper"]


def test_what_is_not_built_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "model_index.json").write_text("{}")
    with pytest.raises(StartupError, match="not built yet"):
        require_ready(select(None, tmp_path))
    require_ready(by_rules(select("text", None)))
