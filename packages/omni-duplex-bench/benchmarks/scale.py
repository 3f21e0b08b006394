"""Sessions per core at p99 pacing lag under 20 ms, memory and CPU per session, against the scripted server.

    python benchmarks/scale.py [--json] [--quick] [--realtime]

The scripted server runs in a process of its own and on another core than the client where there are two. Each point
holds its sessions for the length of the input, then stops. The bare loop opens as many WebSockets to the same server,
sends the same bytes on the same schedule and reads what comes, without events, ledger, playback or records: the rest
is what this package costs.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from omni_duplex_bench.bench import LoadConfig, RunState, run_load
from omni_duplex_bench.cases import Case, Prepared
from omni_duplex_bench.client import ClientConfig
from omni_duplex_bench.pacing import PacingConfig
from omni_duplex_bench.replay import ReplayConfig
from omni_duplex_bench.stats import percentile
from omni_duplex_bench.testing import speechlike

TARGET_SESSIONS, TARGET_LAG_MS = 200, 20.0
RATE_HZ, CHUNK_S = 16_000, 0.2


def rss_mib() -> float:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def worker(url: str, mode: str, sessions: int, seconds: float, realtime: bool) -> dict[str, float]:
    """One measured point in this process, pinned to its first core."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    pcm = speechlike(seconds, RATE_HZ)
    before, cpu = rss_mib(), time.process_time()
    if mode == "timers":
        lags = asyncio.run(timers(sessions, seconds))
    elif mode == "bare":
        lags = asyncio.run(bare(url, sessions, pcm.tobytes()))
    else:
        lags = asyncio.run(ours(url, sessions, pcm, seconds))
    used = time.process_time() - cpu
    lags.sort()
    return {
        "sessions": sessions,
        "lag_p50_ms": percentile(lags, 50) * 1000,
        "lag_p99_ms": percentile(lags, 99) * 1000,
        "lag_max_ms": lags[-1] * 1000,
        "cpu_s_per_session_s": used / sessions / seconds,
        "core_share": used / seconds,
        "mib_per_session": (rss_mib() - before) / sessions,
    }


async def ours(url: str, sessions: int, pcm: Any, seconds: float) -> list[float]:
    """Sessions through the whole package, starts spread over one chunk as independent clients would be."""
    entries = [Prepared(Case(f"s{n}", Path("s.wav")), pcm, RATE_HZ, seconds) for n in range(sessions)]
    for entry in entries:
        _ = entry.speech
    config = ReplayConfig(
        url,
        client=ClientConfig(queue_events=False, open_timeout_s=60),
        pacing=PacingConfig(chunk_ms=round(CHUNK_S * 1000), turns="commit"),
    )
    state = RunState()
    kept: dict[str, Any] = {}
    load = LoadConfig(sessions, request_rate=sessions / 2.0)

    async def watch() -> None:
        while True:
            kept.update((s.case_id, s.pacer) for s in state.sessions if s.pacer is not None)
            await asyncio.sleep(0.5)

    watching = asyncio.create_task(watch())
    await run_load(entries, config, load, output=None, stop=asyncio.Event(), state=state)
    watching.cancel()
    failed = [r.error for r in state.results if r.status != "ok"]
    if failed:
        raise SystemExit(f"{len(failed)} sessions failed, the first: {failed[0]}")
    return [lag for pacer in kept.values() for lag in pacer.trace.lags_s]


async def timers(sessions: int, seconds: float) -> list[float]:
    """The same schedule without a socket: what this machine, with whatever else runs on it, adds by itself."""
    lags: list[float] = []

    async def one(index: int) -> None:
        start = time.monotonic() + index * 2.0 / sessions
        for number in range(1, int(seconds / CHUNK_S) + 1):
            due = start + number * CHUNK_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            lags.append(max(0.0, time.monotonic() - due))

    await asyncio.gather(*(one(index) for index in range(sessions)))
    return lags


async def bare(url: str, sessions: int, pcm: bytes) -> list[float]:
    """The same traffic by hand."""
    size = int(RATE_HZ * CHUNK_S) * 2
    lags: list[float] = []

    async def one(index: int) -> None:
        await asyncio.sleep(index * 2.0 / sessions)
        async with connect(
            url + "?duplex=1&autostart=1", ping_interval=None, compression=None, max_size=None
        ) as socket:
            done = asyncio.Event()

            async def read() -> None:
                async for message in socket:
                    if b'"response.done"' in (message if isinstance(message, bytes) else message.encode()):
                        done.set()

            reader = asyncio.create_task(read())
            start = time.monotonic()
            for number, at in enumerate(range(0, len(pcm), size), 1):
                due = start + number * CHUNK_S
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                lags.append(max(0.0, time.monotonic() - due))
                audio = base64.b64encode(pcm[at : at + size]).decode()
                await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
            await socket.send('{"type": "input_audio_buffer.commit"}')
            await done.wait()
            reader.cancel()

    await asyncio.gather(*(one(index) for index in range(sessions)))
    return lags


def point(url: str, mode: str, sessions: int, seconds: float, realtime: bool) -> dict[str, float]:
    """A point in a fresh process."""
    command = [sys.executable, __file__, "--worker", url, mode, str(sessions), str(seconds), str(int(realtime))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.strip() or f"the worker ended with {done.returncode}")
    result: dict[str, float] = json.loads(done.stdout)
    return result


def measure(*, quick: bool, realtime: bool) -> dict[str, Any]:
    """Growing numbers of sessions until the lag bound breaks, with timers and a bare loop beside each."""
    seconds = 6.0 if quick else 12.0
    steps = [TARGET_SESSIONS] if quick else [TARGET_SESSIONS, 300, 400]
    server = subprocess.Popen(
        [sys.executable, "-m", "omni_duplex_bench.testing", "--turns", "commit", "--quiet", "--reply-s", "1"],
        stdout=subprocess.PIPE,
        text=True,
    )
    results: list[dict[str, Any]] = []
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        os.sched_setaffinity(server.pid, {max(os.sched_getaffinity(0))})
        for sessions in steps:
            modes = ("timers", "bare", "omni-duplex-bench")
            results += [{"mode": mode} | point(url, mode, sessions, seconds, realtime) for mode in modes]
            if sessions >= TARGET_SESSIONS and results[-1]["lag_p99_ms"] >= TARGET_LAG_MS:
                break
    finally:
        server.terminate()
        server.wait(10)
    mine = {r["sessions"]: r for r in results if r["mode"] == "omni-duplex-bench"}
    bare_ones = {r["sessions"]: r for r in results if r["mode"] == "bare"}
    target = mine[TARGET_SESSIONS]
    held = max((n for n, r in mine.items() if r["lag_p99_ms"] < TARGET_LAG_MS), default=0)
    other = bare_ones.get(TARGET_SESSIONS)
    ratio = target["cpu_s_per_session_s"] / other["cpu_s_per_session_s"] if other else None
    return {
        "machine": {
            "cores": len(os.sched_getaffinity(0)),
            "cpu": cpu_name(),
            "system": platform.platform(),
            "realtime_priority": realtime,
        },
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("omni-duplex-bench", "websockets", "msgspec", "numpy")},
        "results": results,
        "bars": [
            {
                "name": f"p99 pacing lag of {TARGET_SESSIONS} sessions on one core, ms",
                "value": target["lag_p99_ms"],
                "target": f"< {TARGET_LAG_MS:g}",
                "holds": target["lag_p99_ms"] < TARGET_LAG_MS,
            },
            {
                "name": "sessions per core at p99 lag under 20 ms (largest step tried that held)",
                "value": held,
                "target": f">= {TARGET_SESSIONS}",
                "holds": held >= TARGET_SESSIONS,
            },
            {
                "name": "memory per session, MiB",
                "value": target["mib_per_session"],
                "target": "< 1",
                "holds": target["mib_per_session"] < 1.0,
            },
            {
                "name": "CPU per session over a bare websockets loop, ratio",
                "value": ratio,
                "target": "< 3",
                "holds": ratio is not None and ratio < 3.0,
            },
        ],
    }


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    return {"cores": len(os.sched_getaffinity(0)), "cpu": cpu_name(), "system": platform.platform()}


def cpu_name() -> str:
    """The processor as the kernel names it."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def show(report: dict[str, Any]) -> None:
    """The report as text."""
    machine = report["machine"]
    print(f"{machine['cores']} cores, {machine['cpu']}; {report['versions']}")
    print(f"{'':18} {'sessions':>8} {'lag p50':>8} {'p99':>7} {'max ms':>7} {'of core':>8} {'MiB each':>9}")
    for r in report["results"]:
        print(
            f"{r['mode']:18} {r['sessions']:8.0f} {r['lag_p50_ms']:8.2f} {r['lag_p99_ms']:7.2f} {r['lag_max_ms']:7.1f}"
            f" {r['core_share']:8.2f} {r['mib_per_session']:9.3f}"
        )
    for bar in report["bars"]:
        value = "–" if bar["value"] is None else f"{bar['value']:.2f}"
        print(f"{'holds' if bar['holds'] else 'MISSED':7} {bar['name']}: {value} (target {bar['target']})")


def main() -> None:
    """Entry point."""
    if sys.argv[1:2] == ["--worker"]:
        url, mode, sessions, seconds, realtime = sys.argv[2:]
        print(json.dumps(worker(url, mode, int(sessions), float(seconds), realtime == "1")))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="one step, under a minute")
    parser.add_argument(
        "--realtime",
        action="store_true",
        help="measure at realtime priority, to keep a busy machine out of the numbers",
    )
    arguments = parser.parse_args()
    report = measure(quick=arguments.quick, realtime=arguments.realtime)
    if arguments.json:
        print(json.dumps(report, indent=2, allow_nan=False))
    else:
        show(report)


if __name__ == "__main__":
    main()
