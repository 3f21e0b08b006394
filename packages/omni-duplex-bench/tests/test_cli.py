"""The command as people run it: in a process, on a terminal and not, interrupted and refused."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_duplex_bench.testing import speechlike
from omni_duplex_bench.wavfile import wav_bytes

COMMAND = [sys.executable, "-c", "from omni_duplex_bench.cli import main; main()"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = subprocess.Popen(
        [sys.executable, "-m", "omni_duplex_bench.testing", "--reply-s", "0.5"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGINT)
        try:
            server.communicate(timeout=60)
        finally:
            # A server that does not follow fails the test above, and is gone all the same.
            server.kill()
            server.communicate()


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    path = tmp_path / "hello.wav"
    path.write_bytes(wav_bytes(speechlike(0.6, 44_100), 44_100))
    return path


def call(*arguments: str, code: int = 0, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == code, done.stderr + done.stdout
    return done


def test_run_ends_with_a_table_and_a_folder(url: str, wav: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    secret = {"OPENAI_API_KEY": "sk-very-secret"}
    done = call("run", "--url", url, "--input", str(wav), "--output-dir", str(out), env=secret)
    assert "First audio after speech, ms" in done.stdout
    assert "1 of 1 sessions ok" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines() if "results in" not in line and "✓" not in line) <= 80
    assert "\x1b" not in done.stdout
    everything = {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert {"results.json", "results.csv", "report.html", "hello/output.wav", "hello/.done"} <= set(everything)
    assert not [name for name, data in everything.items() if b"sk-very-secret" in data]
    rows = list(csv.DictReader(io.StringIO(everything["results.csv"].decode("utf-8-sig"))))
    assert float(rows[0]["ttfp_speech_end_ms"]) > 0
    page = everything["report.html"].decode()
    assert "<svg" in page
    assert not re.search(r"(src|href)=", page), "the report is one file"


def test_a_terminal_of_80_columns_gets_a_live_table(url: str, wav: Path, tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    env = {**os.environ, "COLUMNS": "80", "LINES": "24", "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [*COMMAND, "run", "--url", url, "--input", str(wav), "--output-dir", str(tmp_path / "o")],
        stdout=follower,
        stderr=follower,
        env=env,
    )
    os.close(follower)
    seen = b""
    while select.select([leader], [], [], 60)[0]:
        try:
            piece = os.read(leader, 65536)
        except OSError:
            break
        if not piece:
            break
        seen += piece
    os.close(leader)
    assert process.wait(20) == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert "lag ms" in text
    assert "you speak" in text
    live = [line for line in re.split(r"[\r\n]+", text) if "hello" in line and "/0.6 s" in line]
    assert live
    assert max(map(len, live)) <= 80


def test_ctrl_c_keeps_what_was_measured(url: str, wav: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.wav"
    long.write_bytes(wav_bytes(speechlike(60.0, 16_000), 16_000))
    out = tmp_path / "out"
    process = subprocess.Popen(
        [*COMMAND, "run", "--url", url, "--input", str(wav), "--input", str(long), "--output-dir", str(out)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    assert "hello" in first
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=60)[0]
    assert process.returncode == 130
    assert "INCOMPLETE" in rest
    saved = json.loads((out / "results.json").read_text())
    assert saved["complete"] is False
    assert {c["case_id"]: c["status"] for c in saved["cases"]}["hello"] == "ok"


def test_a_sweep_and_its_comparison(url: str, wav: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    done = call(
        *("run", "--url", url, "--input", str(wav), "--output-dir", str(out), "--concurrency", "1,2", "--repeat", "2"),
        *("--goodput", "ttfp_speech_end:60000", "--percentiles", "50"),
    )
    assert "c1" in done.stdout
    points = json.loads((out / "sweep.json").read_text())["points"]
    assert [p["label"] for p in points] == ["c1", "c2"]
    assert [p["goodput"]["good"] for p in points] == [2, 2]
    table = call("compare", str(out / "c1"), str(out / "c2")).stdout
    assert "95 % interval" in table
    loaded = json.loads(call("compare", "--json", str(out / "c1"), str(out / "c2")).stdout)
    assert loaded["shared_cases"] == 2
    assert any(d["low"] is not None for d in loaded["differences"])
    assert "compare its points: c1, c2" in call("compare", str(out), str(out), code=2).stderr


def test_probe_says_what_the_server_is(url: str) -> None:
    shown = json.loads(call("probe", "--url", url, "--json").stdout)
    assert shown["dialect"] == "ga"
    assert shown["capabilities"]["chunk_period_ms"] == 1000
    assert shown["turn_ended_by"].startswith("server")
    assert shown["decision"] == "response"
    assert "by token" in call("probe", "--url", url).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run", "--url", "ftp://x", "--input", "a.wav"), 2, "realtime address"),
        (("run", "--url", "ws://h", "--input", "/nowhere.wav"), 2, "does not exist"),
        (("run", "--url", "ws://h", "--input", "a.wav", "--goodput", "speed:1"), 2, "known: ttfp"),
        (("run", "--url", "ws://h"), 2, "--input"),
        (("run", "--url", "ws://h", "--input", "a.wav", "--header", "nonsense"), 2, "NAME: VALUE"),
        (("probe", "--url", "ws://127.0.0.1:1"), 1, "cannot connect"),
        (("compare", "/nowhere", "/nowhere"), 2, "No such file"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(arguments: tuple[str, ...], code: int, words: str) -> None:
    done = call(*arguments, code=code)
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failing_server_is_exit_status_1(wav: Path, tmp_path: Path) -> None:
    arguments = ("run", "--url", "ws://127.0.0.1:1", "--input", str(wav), "--output-dir", str(tmp_path / "o"))
    done = call(*arguments, code=1)
    assert "cannot connect to ws://127.0.0.1:1" in done.stdout
    assert "nothing was measured" in done.stdout


def test_help_and_version() -> None:
    assert "probe" in call("--help").stdout
    assert "0.1.0" in call("--version").stdout
    assert "--concurrency" in call("run", "--help").stdout
