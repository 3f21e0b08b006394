"""What contradicts itself is refused in one sentence, before anything is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omni_duplex_bench.aggregate import GOODPUT_NAMES, parse_goodput
from omni_duplex_bench.errors import UsageError
from omni_duplex_bench.options import RunOptions, numbers


def options(**changes: Any) -> RunOptions:
    given = frozenset(changes.pop("given", ()))
    base: dict[str, Any] = {"url": "ws://h/", "inputs": ("data",), "output_dir": Path("out"), "given": given}
    return RunOptions(**(base | changes))


def test_the_defaults_are_fine() -> None:
    options().check()
    assert not options().is_sweep
    assert options().num_prompts == 3
    assert (options().session_timeout_s, options().media_timeout_s, options().max_video_s) == (900.0, 600.0, 3600.0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"url": "ftp://x"}, "realtime address"),
        ({"inputs": ()}, "--input"),
        ({"concurrency": (0,)}, "--concurrency"),
        ({"request_rate": (0.0,)}, "--request-rate"),
        ({"percentiles": (101.0,)}, "--percentiles"),
        ({"num_prompts": -1}, "--num-prompts"),
        ({"repeat": 0}, "--repeat"),
        ({"subsets": ("2q2a",)}, "known: 1q1a"),
        ({"ref_audio": Path("/nowhere.wav")}, "--ref-audio"),
        ({"session_timeout_s": 0.0}, "--session-timeout-s"),
        ({"session_timeout_s": float("nan")}, "--session-timeout-s"),
        ({"chunk_ms": 1}, "--chunk-ms"),
        ({"shuffle": False, "given": ["seed"]}, "--no-shuffle contradicts --seed"),
        ({"concurrency": (1, 2), "request_rate": (1.0, 2.0)}, "cannot both be sweeps"),
        ({"resume": True}, "--resume needs --output-dir"),
        ({"resume": True, "given": ["output_dir"], "concurrency": (1, 2)}, "--resume contradicts a sweep"),
        ({"turns": "commit", "given": ["tail_s"]}, "--tail-s"),
        ({"inputs": ("a.wav",), "given": ["subsets"]}, "--subsets selects from datasets"),
        ({"session_timeout_s": 5.0, "given": ["decision_timeout_s"]}, "--decision-timeout-s"),
        ({"goodput": ("nonsense:1",)}, "known: ttfp_speech_end_ms"),
    ],
)
def test_contradictions_are_refused_by_name(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        options(**changes).check()


@pytest.mark.parametrize("text", ["ttft", "ttft:", "ttft:-1", "ttft:nan", "ttft:inf", "ttft:x", ":5"])
def test_goodput_limits_need_a_name_and_a_positive_number(text: str) -> None:
    with pytest.raises(UsageError):
        parse_goodput([text])


def test_goodput_names_with_or_without_their_unit() -> None:
    assert parse_goodput(["ttft:5", "rtf:0.9", "ttfp_speech_end_ms:800"]) == {
        "ttft_ms": 5.0,
        "rtf": 0.9,
        "ttfp_speech_end_ms": 800.0,
    }
    assert "ttft_ms" in GOODPUT_NAMES
    with pytest.raises(UsageError, match="given twice"):
        parse_goodput(["ttft:5", "ttft_ms:6"])


def test_lists_of_numbers() -> None:
    assert numbers("1,2,4", int, "--x") == (1, 2, 4)
    with pytest.raises(UsageError, match="--x"):
        numbers("1,two", int, "--x")
