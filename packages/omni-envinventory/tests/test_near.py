"""Typos get the right suggestion; other names, service links and image builds get none."""
# ruff: noqa: E501

from __future__ import annotations

import pytest

from omni_envinventory import (
    EnvironmentTypoWarning,
    Inventory,
    Rule,
    Variable,
    check_stage_env,
    load_inventory,
    warn_unknown,
)
from omni_envinventory.near import Origin, did_you_mean, distance, origin
from omni_envinventory.runtime import unknown_variables

KNOWN = [variable.name for variable in load_inventory("vllm-omni") if variable.category == "public"]

TYPOS = {
    "VLLM_OMNI_STORAGE_PAHT": "VLLM_OMNI_STORAGE_PATH",
    "VLLM_OMNI_STORGE_PATH": "VLLM_OMNI_STORAGE_PATH",
    "VLLM_OMNI_STORAGEPATH": "VLLM_OMNI_STORAGE_PATH",
    "VLLM_OMNI_STORAGE-PATH": "VLLM_OMNI_STORAGE_PATH",
    "vllm_omni_storage_path": "VLLM_OMNI_STORAGE_PATH",
    "VLLM_OMNI_PATH_STORAGE": "VLLM_OMNI_STORAGE_PATH",
    "VLLM_ONMI_STORAGE_PATH": "VLLM_OMNI_STORAGE_PATH",
    "VLLM_OMNI_VIDEO_SYNC_TIMEOUTS": "VLLM_OMNI_VIDEO_SYNC_TIMEOUT",
    "VLLM_OMNI_VIDEO_SYNC_TIMEOT": "VLLM_OMNI_VIDEO_SYNC_TIMEOUT",
    "VLLM_OMNI_INPUT_WAIT_TIMEOUT": "VLLM_OMNI_INPUT_WAIT_TIMEOUT_S",
    "VLLM_OMNI_USE_QUAK_FP8": "VLLM_OMNI_USE_QUACK_FP8",
    "VLLM_OMNI_SERVER_STORAGE_PATH": "VLLM_OMNI_SERVER_STORAGE__PATH",
    "VLLM_OMNI_SERVER_STORAGE__FILE_TLL": "VLLM_OMNI_SERVER_STORAGE__FILE_TTL",
    "DIFFUSION_ATENTION_BACKEND": "DIFFUSION_ATTENTION_BACKEND",
    "DIFFUSION_CACHE_BACKND": "DIFFUSION_CACHE_BACKEND",
    "SPEAKERS_SAMPLES_DIR": "SPEAKER_SAMPLES_DIR",
    "SPEAKER_MAX_UPLOAD": "SPEAKER_MAX_UPLOADED",
    "OMNI_DIFFUSION_PROMPT_EMBED_CACHE_SIZ": "OMNI_DIFFUSION_PROMPT_EMBED_CACHE_SIZE",
    "VLLM_VIDEO_ASYNC_CHUNKS": "VLLM_VIDEO_ASYNC_CHUNK",
}


@pytest.mark.parametrize("typo", TYPOS, ids=str)
def test_did_you_mean(typo: str) -> None:
    assert did_you_mean(typo, KNOWN) == TYPOS[typo]


@pytest.mark.parametrize(
    "name",
    [
        "HOME",
        "PATH",
        "LANG",
        "CUDA_HOME",
        "VLLM_USE_V1",
        "VLLM_ATTENTION_BACKEND",
        "TMPDIR",
        "VLLM_OMNI_LOG_LEVEL",
        "A",
        "NCCL_DEBUG",
    ],
)
def test_other_names_are_not_typos(name: str) -> None:
    assert did_you_mean(name, KNOWN) is None


def test_names_that_differ_in_numbers_are_different() -> None:
    assert did_you_mean("APP_STAGE_2_PORT", ["APP_STAGE_1_PORT"]) is None


LINKS = [
    ("VLLM_PORT", "tcp://10.0.0.1:80"), ("VLLM_OMNI_PORT", "tcp://10.0.0.1:8000"), ("VLLM_OMNI_SERVICE_HOST", "10.0.0.1"),
    ("VLLM_OMNI_SERVICE_PORT", "8000"), ("VLLM_OMNI_SERVICE_PORT_HTTP", "8000"), ("VLLM_OMNI_PORT_8000_TCP", "tcp://10.0.0.1:8000"),
    ("VLLM_OMNI_PORT_8000_TCP_ADDR", "10.0.0.1"), ("VLLM_OMNI_PORT_8000_TCP_PORT", "8000"), ("VLLM_OMNI_PORT_8000_TCP_PROTO", "tcp"),
    ("VLLM_OMNI_PORT", "udp://[fd00::1]:53"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), LINKS)
def test_service_links(name: str, value: str) -> None:
    assert origin(name, value, [*KNOWN, "VLLM_PORT", "VLLM_OMNI_HOST"])[0] is Origin.SERVICE_LINK


def test_a_port_that_is_a_number_is_no_link() -> None:
    assert origin("VLLM_OMNI_PROT", "80", ["VLLM_OMNI_PORT"]) == (Origin.TYPO, "VLLM_OMNI_PORT")


@pytest.mark.parametrize(
    "name", ["VLLM_OMNI_VERSION", "VLLM_OMNI_BUILD_COMMIT", "VLLM_OMNI_IMAGE_TAG", "VLLM_OMNI_GIT_SHA"]
)
def test_image_builds(name: str) -> None:
    assert origin(name, "x", KNOWN)[0] is Origin.IMAGE_BUILD


def test_distance() -> None:
    assert [distance("abc", other, 3) for other in ("abc", "acb", "ab", "abcd", "abd", "xyz")] == [0, 1, 1, 1, 1, 3]
    assert distance("abcdef", "uvwxyz", 2) == 3


APP = Inventory(
    "app",
    (Variable("OMNI_PORT", "public"), Variable("OMNI_LOG_LEVEL", "public"), Variable("VLLM_PORT", "inherited")),
)


def test_warn_unknown_names_typos_once_and_never_values() -> None:
    environ = {"OMNI_PROT": "s3cret-value", "OMNI_LOGLEVEL": "x", "OMNI_PORT": "1", "ONMI_PORT": "2", "HOME": "/"}
    with pytest.warns(EnvironmentTypoWarning) as caught:
        strangers = warn_unknown(("OMNI_",), inventory=APP, environ=environ)
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "OMNI_PROT (did you mean OMNI_PORT?)" in message
    assert "ONMI_PORT (did you mean OMNI_PORT?)" in message
    assert "OMNI_LOGLEVEL (did you mean OMNI_LOG_LEVEL?)" in message
    assert "s3cret" not in message + repr(strangers)


def test_quiet_on_links_builds_and_unrelated(recwarn: pytest.WarningsRecorder) -> None:
    environ = {
        "OMNI_SERVICE_HOST": "10.0.0.1",
        "OMNI_PORT": "tcp://10.0.0.1:80",
        "OMNI_VERSION": "1.2",
        "OMNI_SOMETHING_ELSE": "1",
        "PATH": "/bin",
    }
    strangers = {s.name: s.origin for s in warn_unknown(("OMNI_",), inventory=APP, environ=environ)}
    assert strangers == {
        "OMNI_SERVICE_HOST": Origin.SERVICE_LINK,
        "OMNI_PORT": Origin.SERVICE_LINK,
        "OMNI_VERSION": Origin.IMAGE_BUILD,
        "OMNI_SOMETHING_ELSE": Origin.UNKNOWN,
    }
    assert len(recwarn) == 0


def test_default_inventory_is_the_built_in() -> None:
    with pytest.warns(EnvironmentTypoWarning, match="VLLM_OMNI_STORAGE_PATH"):
        warn_unknown(environ={"VLLM_OMNI_STORAGE_PAHT": "x"})
    assert unknown_variables(("OMNI_",), environ={}) == ()


def test_a_service_link_is_not_a_typo_in_a_report() -> None:
    from omni_envinventory import collect, this_process

    text = collect(APP, environment=this_process({"VLLM_PORT": "tcp://10.0.0.1:80"})).to_text()
    assert "VLLM_PORT (a Kubernetes service link)" in text


def test_stage_env() -> None:
    inventory = Inventory("x", (Variable("A_ONE", "public", stages=("thinker",)), Variable("B_TWO", "public")))
    assert check_stage_env(inventory, {"thinker": ["A_ONE", "B_TWO"], "talker": ["B_TWO"]}) == ()
    found = check_stage_env(inventory, {"talker": ["A_ONE", "B_TOW"]}, path="p.yaml")
    assert [(f.rule, f.name, f.suggestion) for f in found] == [
        (Rule.STAGE_ENV, "A_ONE", None),
        (Rule.STAGE_ENV, "B_TOW", "B_TWO"),
    ]
