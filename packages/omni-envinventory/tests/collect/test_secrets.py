"""A corpus of secrets of which no fragment may appear anywhere, and one of harmless things that must stay readable."""
# ruff: noqa: E501

from __future__ import annotations

import base64
import json
import logging
import os
import random
import string
import traceback
import urllib.parse
from pathlib import Path

import pytest

from omni_envinventory import Inventory, Variable, collect, diff, read_snapshot, this_process, write_snapshot
from omni_envinventory.collect import Environment, Fingerprinter, Label, as_json, diff_text

SHOWN = ["APP_PUBLIC", "APP_SECOND", "APP_THIRD"]


def inventory() -> Inventory:
    return Inventory("app", tuple(Variable(name, "public") for name in SHOWN))


def secret(rng: random.Random, length: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """A random secret that no fixed part of a report can contain by accident: it has digits and mixed case throughout."""
    while True:
        made = "".join(rng.choice(alphabet) for _ in range(length))
        if sum(c.isdigit() for c in made) >= max(2, length // 8) and any(c.isalpha() for c in made):
            return made


def corpus(seed: int) -> dict[str, tuple[str, list[str]]]:
    """Kind of value to ``(value, secrets in it)``, each to be put into a variable whose values are shown."""
    rng = random.Random(seed)
    a, b, c = secret(rng, 24), secret(rng, 31), secret(rng, 18)
    hexa = secret(rng, 40, "0123456789abcdef")
    b64 = base64.b64encode(rng.randbytes(48)).decode()
    jwt = ".".join(
        base64.urlsafe_b64encode(json.dumps({"x": part}).encode()).decode().rstrip("=") for part in (a, b, c)
    )
    pem_body = "\n".join(base64.b64encode(rng.randbytes(48)).decode() for _ in range(4))
    return {
        "url with password": (f"https://user:{a}@host.example/simple", [a]),
        "url with token as user": (f"https://{a}:@host.example/simple", [a]),
        "url with token alone": (f"https://{a}@host.example/simple", [a]),
        "url with a slash in the password": (f"https://user:{a}/{b}@host.example/x", [a, b]),
        "url with an at sign in the password": (f"https://user:{a}@{b}@host.example/x", [a, b]),
        "two urls": (f"https://u:{a}@one.example/,https://u:{b}@two.example/", [a, b]),
        "url in text": (f"use https://u:{a}@one.example/ please", [a]),
        "database url": (f"postgresql+psycopg://app:{a}@db:5432/app?sslmode=require", [a]),
        "redis without user": (f"redis://:{a}@cache:6379/0", [a]),
        "amqp": (f"amqp://guest:{a}@mq//vhost", [a]),
        "signed query": (f"https://bucket.example/o?X-Amz-Signature={hexa}&X-Amz-Expires=60", [hexa]),
        "sas": (
            f"https://acct.blob.example/c?sv=2024&sig={urllib.parse.quote(b64, safe='')}",
            [b64, urllib.parse.quote(b64, safe="")],
        ),
        "token query": (f"https://host.example/hook?token={c}", [c]),
        "webhook path": (f"https://hooks.slack.com/services/T01/B02/{a}", [a]),
        "token in a path": (f"https://host.example/v1/{hexa}/x", [hexa]),
        "url encoded user-info": (f"https%3A%2F%2Fuser%3A{a}%40host.example", [a]),
        "json": (json.dumps({"db": [{"credentials": {"password": a, "user": "x"}}]}), [a]),
        "json cut short": (json.dumps({"password": a, "x": 1})[:-3], [a]),
        "json with a url inside": (json.dumps({"uri": f"mysql://u:{a}@h/d"}), [a]),
        "json list of tokens": (json.dumps([f"hf_{a}"]), [a]),
        "vcap services": (
            json.dumps({"p-mysql": [{"name": "d", "credentials": {"uri": f"mysql://u:{a}@h", "password": b}}]}),
            [a, b],
        ),
        "python dict": (f"{{'api_key': '{a}', 'n': 1}}", [a]),
        "yaml": (f"user: x\npassword: {a}\n", [a]),
        "pem": (f"-----BEGIN PRIVATE KEY-----\n{pem_body}\n-----END PRIVATE KEY-----", pem_body.split("\n")),
        "pem on one line": ("-----BEGIN RSA PRIVATE KEY-----\\n" + pem_body.replace("\n", "\\n"), pem_body.split("\n")),
        "ssh key": (f"ssh-ed25519 {b64} me@host", [b64]),
        "hugging face": (f"hf_{b}", [b]),
        "openai": (f"sk-proj-{a}", [a]),
        "github": (f"ghp_{b}", [b]),
        "github fine grained": (f"github_pat_{a}_{b}", [a, b]),
        "gitlab": (f"glpat-{c}", [c]),
        "slack": (f"xoxb-{rng.randrange(10**11)}-{a}", [a]),
        "aws id": (f"AKIA{secret(rng, 16, string.ascii_uppercase + string.digits)}", []),
        "google": (f"AIza{b}", [b]),
        "jwt": (jwt, jwt.split(".")),
        "npm": (f"//registry.example/:_authToken={c}", [c]),
        "hex": (hexa, [hexa]),
        "base64": (b64, [b64]),
        "plain random": (a, [a]),
        "random in text": (f"prefix {b} suffix", [b]),
        "bearer": (f"Authorization: Bearer {c}", [c]),
        "basic": (
            f"Authorization: Basic {base64.b64encode(f'u:{a}'.encode()).decode()}",
            [base64.b64encode(f"u:{a}".encode()).decode()],
        ),
        "header option": (f"curl -H 'X-Api-Key: {c}' https://x.example", [c]),
        "user option": (f"curl -u admin:{c} https://x.example", [c]),
        "flag": (f"--port 80 --api-key {c}", [c]),
        "flag with equals": (f"--auth-token={c}", [c]),
        "azure": (f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={b64};EndpointSuffix=x", [b64]),
        "odbc": (f"Driver=x;Server=y;Uid=z;Pwd={c};", [c]),
        "dsn words": (f"host=db user=app password={c} dbname=x", [c]),
        "lower case name in pairs": (f"a=1,github_token={c}", [c]),
        "control characters": (f"x\x00\x1b[31mtoken={c}\r\n", [c]),
    }


def everything(environ: dict[str, str], *, with_fingerprints: bool = False) -> str:
    """Every form in which a report could show something: text, JSON, repr, logs, tracebacks."""
    environment = this_process(environ)
    fingerprinter = Fingerprinter(b"k" * 32) if with_fingerprints else None
    snapshot = collect(inventory(), environment=environment, fingerprinter=fingerprinter)
    empty = collect(inventory(), environment=this_process({}), fingerprinter=fingerprinter)
    record = logging.LogRecord("x", logging.INFO, "x", 1, "%s %r %r", (snapshot, environment, fingerprinter), None)
    outputs = [
        snapshot.to_text(),
        as_json(snapshot),
        repr(snapshot),
        str(snapshot),
        repr(environment),
        record.getMessage(),
    ]
    outputs.append(diff_text(diff(empty, snapshot)) + diff_text(diff(snapshot, empty)) + repr(diff(empty, snapshot)))
    try:
        collect(inventory(), environment=environment, provenance={"APP_PUBLIC": "nowhere"})
    except ValueError:
        outputs.append(traceback.format_exc())
    return "\n".join(outputs)


def fragments(secret_value: str) -> set[str]:
    """Every run of four characters."""
    return {secret_value[i : i + 4] for i in range(len(secret_value) - 3)}


KINDS = sorted(corpus(0))


@pytest.mark.parametrize("kind", KINDS)
def test_no_fragment_of_a_secret_appears(kind: str) -> None:
    for seed in range(12):
        value, secrets = corpus(seed)[kind]
        baseline = everything({"APP_PUBLIC": "plain"})
        shown = everything({"APP_PUBLIC": value})
        for known in secrets:
            leaked = {
                part
                for part in fragments(known)
                if part in shown and part not in baseline and part not in value.replace(known, "")
            }
            assert not leaked, f"seed {seed}: {leaked} of {known!r} in\n{shown}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_hidden_variable_shows_its_name_only(kind: str) -> None:
    value, secrets = corpus(3)[kind]
    baseline = everything({})
    shown = everything({"UNDECLARED": value}, with_fingerprints=True)
    assert "UNDECLARED" in shown
    for known in secrets:
        assert not {part for part in fragments(known) if part in shown and part not in baseline}


@pytest.mark.parametrize(
    "wrap",
    [
        "{}", "x{}y", "https://host.example/{}", "{}{}", " {} ", "path/{}/file", "{}=1", "[{}]", '"{}"',
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "known", ["correct horse battery", "hunter22", "abcd", "päss wörd", "line\nbreak", 'quo"te', "1234"]
)
def test_a_redacted_value_inside_another(wrap: str, known: str) -> None:
    shown = everything(
        {"DB_PASSWORD": known, "APP_PUBLIC": wrap.format(known, known), f"X{known}".replace("\n", "_"): "1"}
        if known.isalnum()
        else {"DB_PASSWORD": known, "APP_PUBLIC": wrap.format(known, known)}
    )
    baseline = everything({"DB_PASSWORD": "zzzz", "APP_PUBLIC": "zzzz"})
    assert not {part for part in fragments(known) if part in shown and part not in baseline}


@pytest.mark.parametrize(
    "encode", [urllib.parse.quote, lambda s: base64.b64encode(s.encode()).decode(), json.dumps, str.upper]
)
def test_a_redacted_value_encoded_inside_another(encode: object) -> None:
    known = "some thing/very+quiet"
    assert callable(encode)
    snapshot = collect(
        inventory(), environment=this_process({"HF_TOKEN": known, "APP_PUBLIC": f"see {encode(known)} here"})
    )
    (entry,) = [entry for entry in snapshot.entries if entry.name == "APP_PUBLIC"]
    assert entry.value == "<masked>"


def test_masks_do_not_tell_secrets_apart() -> None:
    values = ["x" * 8, "y" * 80, "hf_" + "a1B2" * 9, "-----BEGIN KEY-----"]
    shown = {everything({"API_TOKEN": value}) for value in values}
    assert len(shown) == 1


def test_a_newline_cannot_forge_a_line() -> None:
    environment = this_process(
        {"APP_PUBLIC": "a\nHF_TOKEN=x", "APP_SECOND": "b\r\u2028\u0085  APP_THIRD = forged", "A\nB": "1"}
    )
    text = collect(inventory(), environment=environment).to_text()
    assert len([line for line in text.splitlines() if "HF_TOKEN" in line and not line.startswith("  APP_PUBLIC")]) == 0
    assert not any(line.lstrip().startswith("APP_THIRD = forged") for line in text.splitlines())
    assert "A\\nB" in text


def test_terminal_and_direction_control_is_escaped() -> None:
    text = collect(inventory(), environment=this_process({"APP_PUBLIC": "\x1b[2J\u202eabc\u200b\x07"})).to_text()
    assert not any(character in text for character in "\x1b\u202e\u200b\x07")
    assert "\\x1b[2J\\u202eabc\\u200b\\x07" in text


def test_bytes_that_are_not_utf8_are_shown_escaped() -> None:
    value = os.fsdecode(b"caf\xe9")
    snapshot = collect(inventory(), environment=this_process({"APP_PUBLIC": value, os.fsdecode(b"N\xff"): "1"}))
    assert "caf\\xe9" in snapshot.to_text()
    assert "N\\xff" in snapshot.to_text()
    snapshot.to_text().encode("utf-8")
    as_json(snapshot).encode("ascii")


def test_secrets_that_are_not_utf8() -> None:
    raw = os.fsdecode(b"s3cr\xe9t-v\xfflue-9")
    shown = everything({"DB_PASS": raw, "APP_PUBLIC": f"x{raw}y"})
    assert not {part for part in fragments(raw) if part in shown}
    assert "lue-9" not in shown


HARMLESS_NAMES = [
    "PASSED", "AUTHORS", "AUTHOR", "KEYBOARD", "MONKEY", "TOKENIZERS_PARALLELISM", "TOKENIZER_PATH", "MAX_TOKENS",
    "MAX_NUM_BATCHED_TOKENS", "PASSAGE", "COMPASS_DIR", "BYPASS_CACHE", "SECRETARY", "AUTHORING", "PASSES", "KEYS_DIR_X"[:3] + "PAD",
    "VLLM_PORT", "CUDA_VISIBLE_DEVICES", "PATH", "PWD", "HOME", "CACHE_KEY_PREFIX", "PUBLIC_KEY_SIZE", "SORT_KEY", "TURKEY",
    "DISCRETE", "ACCREDITED", "TOKEN_LIMIT", "MAX_NEW_TOKENS", "PASSIVE_MODE", "SIGNAL", "DESIGN", "COOKIECUTTER", "HOTKEYS",
    "AUTH_URL", "AUTH_MODE", "OAUTH_ENABLED", "TWO_PASS", "FORWARD_PASS",
]  # fmt: skip

SECRET_NAMES = [
    "NGC_KEY", "github_token", "DB_PASSWD", "HF_TOKEN", "OPENAI_API_KEY", "API_KEY", "apiKey", "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID", "DB_PASSWORD", "dbPassword", "MYSQL_PWD", "SMTP_PASS", "CLIENT_SECRET", "GOOGLE_CREDENTIALS",
    "AUTHORIZATION", "PROXY_AUTH", "SESSION_COOKIE", "PRIVATE_KEY", "SSH_PRIVATE_KEY", "SENTRY_DSN", "SLACK_WEBHOOK_URL",
    "GH_PAT", "JWT", "ACCESSTOKEN", "MYSQLPASSWORD", "AZURE_STORAGE_CONNECTION_STRING", "api-key", "X_API_TOKENS", "PASSPHRASE",
    "DATABASE_URL", "SIGNING_KEY", "ENCRYPTION_KEY", "auth", "token", "GITHUB.TOKEN",
]  # fmt: skip

HARMLESS_VALUES = [
    "1", "true", "/usr/local/cuda-12.1/lib64:/usr/lib/x86_64-linux-gnu", "Qwen/Qwen2.5-Omni-7B-Instruct-GPTQ-Int4",
    "Qwen/Qwen3-30B-A3B-Instruct-2507", "meta-llama/Llama-3.2-11B-Vision-Instruct", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "0,1,2,3",
    "https://huggingface.co/models", "http://10.0.0.1:8000/v1", "https://host.example/search?page=2&lang=en", "tcp://10.0.0.1:80",
    "max_tokens=100", "expandable_segments:True,max_split_size_mb:512", '{"max_num_seqs": 4, "stages": ["thinker", "talker"]}',
    "PASSED=3, FAILED=0", "authors: A, B", "en_US.UTF-8", "2026-01-02T03:04:05Z", "torch==2.6.0+cu124", "python -m pytest -x --maxfail=1",
    "~/.cache/vllm-omni/speakers", "spawn", "DEBUG", "127.0.0.1", "[::1]:8000", "a b c", "VLLM_ATTENTION_BACKEND=FLASH_ATTN",
    "transformers.models.qwen2_5_omni.modeling_qwen2_5_omni", "nvidia/cuda:12.4.1-cudnn-devel-ubuntu22.04", "größe", "日本語",
    "--tensor-parallel-size 2 --gpu-memory-utilization 0.9", "/models/Qwen2.5-Omni-7B/snapshots/main/model-00001-of-00005.safetensors",
    "float16", "socket://", "user@host.example", "redis://cache:6379/0", "postgresql://db/app", "sm_80;sm_86;sm_89;sm_90+PTX",
]  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS_NAMES)
def test_harmless_names_stay_visible(name: str) -> None:
    snapshot = collect(inventory(), environment=this_process({name: "plain"}), allow=[name])
    assert f"{name} = plain" in " ".join(snapshot.to_text().split())


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_secret_names_are_masked_even_when_allowed(name: str) -> None:
    text = collect(inventory(), environment=this_process({name: "plain"}), allow=[name]).to_text()
    assert "plain" not in text
    assert "<masked>" in text


@pytest.mark.parametrize("value", HARMLESS_VALUES)
def test_harmless_values_stay_visible(value: str) -> None:
    snapshot = collect(inventory(), environment=this_process({"APP_PUBLIC": value}))
    (entry,) = [entry for entry in snapshot.entries if entry.name == "APP_PUBLIC"]
    assert entry.value == value.replace("\\", "\\\\")


def test_pip_index_url() -> None:
    environment = this_process({"PIP_INDEX_URL": "https://TOKEN:@host/simple"})
    text = collect(inventory(), environment=environment, allow=["PIP_INDEX_URL"]).to_text()
    assert "PIP_INDEX_URL = https://<masked>@host/simple" in text
    assert "TOKEN" not in text


def test_values_need_permission() -> None:
    environment = this_process({"OTHER": "value-1", "PRE_A": "value-2", "APP_PUBLIC": "value-3", "LISTED": "value-4"})
    text = collect(inventory(), environment=environment, prefixes=["PRE_"], allow=["LISTED"]).to_text()
    assert "value-1" not in text
    assert all(value in text for value in ("value-2", "value-3", "value-4"))


def test_a_snapshot_on_disk_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APP_PUBLIC", "https://u:q7W8e9R0t1@h.example/")
    monkeypatch.setenv("DB_PASSWORD", "q7W8e9R0t1")
    write_snapshot(tmp_path / "s.json", inventory(), key_path=tmp_path / "key")
    content = (tmp_path / "s.json").read_text()
    assert not {part for part in fragments("q7W8e9R0t1") if part in content}
    assert (tmp_path / "s.json").stat().st_mode & 0o077 == 0
    assert (tmp_path / "key").stat().st_mode & 0o077 == 0
    assert read_snapshot(tmp_path / "s.json").label is Label.LIVE


def test_environment_repr_counts_only() -> None:
    assert repr(Environment(Label.LIVE, 1, {"A": "very-secret"})) == "Environment(label=live, pid=1, variables=<1>)"
