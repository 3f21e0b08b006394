"""All-gather with real processes over gloo on the loopback."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

WORKER = pathlib.Path(__file__).with_name("gather_worker.py")


def scenario(kind: str, device: str, ranks: int, folder: pathlib.Path) -> None:
    environment = {
        **os.environ,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "compiler"),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, str(WORKER), kind, device, str(rank), str(ranks), str(folder / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in range(ranks)
    ]
    try:
        outputs = [process.communicate(timeout=200)[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    for rank, (process, output) in enumerate(zip(processes, outputs)):
        assert process.returncode == 0, f"rank {rank} of {kind} on {device}:\n{output[-6000:]}"
        assert '"ok": true' in output


@pytest.mark.limit_s(240)
@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_agree_with_the_resident_model(device: str, ranks: int, tmp_path: pathlib.Path) -> None:
    """Also after whole-tensor reads, ranks that diverge, one rank that raises, and all that do."""
    scenario("plain,reads,diverge,raise,raise everywhere", device, ranks, tmp_path)


def test_every_hand_over_of_a_gather_is_needed(tmp_path: pathlib.Path) -> None:
    scenario("hand overs", "simulated", 1, tmp_path)


@pytest.mark.limit_s(240)
def test_dtensors_of_one_rank_stream(tmp_path: pathlib.Path) -> None:
    scenario("dtensor", "both", 1, tmp_path)


@pytest.mark.limit_s(240)
def test_weights_that_fsdp_sharded_are_refused(tmp_path: pathlib.Path) -> None:
    scenario("fsdp", "cpu", 2, tmp_path)


def test_a_rank_that_stays_away_is_an_error_within_the_time_bound(tmp_path: pathlib.Path) -> None:
    scenario("gone", "cpu", 2, tmp_path)
