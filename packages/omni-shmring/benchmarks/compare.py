"""Compare this package with what a Python engine could pick today: python compare.py [--json] [--quick].

Two spawned processes, contenders interleaved in several rounds, medians over rounds. One-way latency is measured with
one message in flight and the receiver blocked; throughput and CPU with a window of 32 messages in flight.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from dataclasses import dataclass
from typing import Any

import contenders as peers
import torch

PAYLOADS = {
    "a": "28 int64 codes and small metadata",
    "b": "512 KiB of float32 and small leaves",
    "c": "eight 8 KiB leaves",
    "d": "one 4 MiB tensor",
    "e": "8,192 token ids",
}
WINDOW = 32
OURS, OURS_PLAIN = "omni-shmring", "omni-shmring exact=False"


def payload(name: str) -> Any:
    """The message of a payload letter."""
    if name == "a":
        return {"codes": torch.arange(28), "finished": False, "request_id": "req-1", "step": 17}
    if name == "b":
        return {"hidden": torch.randn(128, 1024), "mask": torch.ones(128, dtype=torch.bool), "step": 1, "id": "req-1"}
    if name == "c":
        return {f"leaf{n}": torch.randn(2048) for n in range(8)}
    if name == "d":
        return {"hidden": torch.randn(1024, 1024)}
    return {"token_ids": list(range(1000, 9192)), "id": "req-1"}


def touch(tree: Any) -> None:
    """Read every page of the large tensors: a tensor whose pages are not mapped yet is not there yet."""
    for leaf in tree.values():
        if isinstance(leaf, torch.Tensor) and leaf.nbytes >= 64 << 10:
            leaf.view(-1)[:: 4096 // leaf.itemsize].sum()


@dataclass
class Job:
    """One contender with one payload."""

    letter: str
    contender: peers.Contender
    latency: int
    stream: int


def receive_side(jobs: list[Job], ack: Any, out: Any) -> None:
    """The receiving process: for each job the times of arrival with one in flight, then a stream."""
    torch.set_num_threads(1)
    for job in jobs:
        contender = job.contender
        receive = contender.receiver()
        ack.send_bytes(b"ready")
        arrivals = []
        for _ in range(job.latency):
            touch(receive())
            arrivals.append(time.perf_counter_ns())
            ack.send_bytes(b"1")
        before = time.process_time_ns()
        for number in range(job.stream):
            touch(receive())
            if number % (WINDOW // 2) == WINDOW // 2 - 1:
                ack.send_bytes(b"1")
        ended, cpu = time.perf_counter_ns(), time.process_time_ns() - before
        out.send((arrivals, cpu, ended, empty_poll_ns(contender)))
        ack.send_bytes(b"end")
        contender.close()


def empty_poll_ns(contender: peers.Contender) -> float | None:
    """What asking for a message that is not there costs, for those that can be asked."""
    if not hasattr(contender, "empty_poll"):
        return None
    poll = contender.empty_poll()
    best = float("inf")
    for _ in range(200):
        start = time.perf_counter_ns()
        for _ in range(100):
            poll()
        best = min(best, (time.perf_counter_ns() - start) / 100)
    return best


def send_side(jobs: list[Job], ack: Any, out: Any) -> None:
    """The sending process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for job in jobs:
        tree = payload(job.letter)
        ack.recv_bytes()
        send = job.contender.sender()
        sent = []
        for _ in range(job.latency):
            # The receiver is back in its blocking call by then; both sides of every contender wait the same.
            time.sleep(0.0003)
            sent.append(time.perf_counter_ns())
            send(tree)
            ack.recv_bytes()
        cpu, start, granted = time.process_time_ns(), time.perf_counter_ns(), WINDOW
        for _ in range(job.stream):
            if granted == 0:
                ack.recv_bytes()
                granted = WINDOW // 2
            send(tree)
            granted -= 1
        out.send((sent, time.process_time_ns() - cpu, start))
        while ack.recv_bytes() != b"end":
            continue  # torch hands over descriptors as long as it is asked: the sender leaves last
        job.contender.close()


def measure(jobs: list[Job]) -> list[dict[str, float]]:
    """One round: for each job p50 and p99 in µs, messages a second, CPU in µs a message, empty poll in ns."""
    context = multiprocessing.get_context("spawn")
    ack_there, ack_here = context.Pipe()
    results_in, out_in = context.Pipe(duplex=False)
    results_out, out_out = context.Pipe(duplex=False)
    processes = [
        context.Process(target=receive_side, args=(jobs, ack_there, out_in)),
        context.Process(target=send_side, args=(jobs, ack_here, out_out)),
    ]
    for process in processes:
        process.start()
    for end in (ack_there, ack_here, out_in, out_out):
        end.close()  # so that a process that dies is an error here, and not a wait for ever
    found = []
    try:
        for job in jobs:
            (sent, cpu_out, start), (arrivals, cpu_in, ended, poll_ns) = results_out.recv(), results_in.recv()
            ways = sorted((there - here) / 1000 for here, there in zip(sent, arrivals))
            numbers = {
                "p50_us": statistics.median(ways),
                "p99_us": ways[int(len(ways) * 0.99) - 1],
                "per_s": job.stream / ((ended - start) / 1e9),
                "cpu_us": (cpu_out + cpu_in) / 1000 / job.stream,
            }
            if poll_ns is not None:
                numbers["empty_poll_ns"] = poll_ns
            found.append(numbers)
    finally:
        for process in processes:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()
    return found


def run(
    letters: str, rounds: int, latency: int, stream: int, only: str
) -> tuple[dict[str, dict[str, dict[str, float]]], dict[str, str]]:
    """Medians over rounds: payload letter to contender to numbers."""
    rows: dict[str, dict[str, list[dict[str, float]]]] = {letter: {} for letter in letters}
    missing: dict[str, str] = {}
    for number in range(rounds):
        jobs = []
        for letter in letters:
            found, missing = peers.all_contenders()
            wanted = [c for c in found if only in c.name or c.name.startswith(OURS)]
            turn = number % len(wanted)  # nobody is always first, or always after the same one
            small = max(WINDOW, stream // (16 if letter in "bd" else 1))
            jobs += [Job(letter, contender, latency, small) for contender in wanted[turn:] + wanted[:turn]]
        for job, numbers in zip(jobs, measure(jobs)):
            rows[job.letter].setdefault(job.contender.name, []).append(numbers)
    medians = {
        letter: {
            name: {key: statistics.median(r[key] for r in results) for key in results[0]}
            for name, results in by_name.items()
        }
        for letter, by_name in rows.items()
    }
    return medians, missing


def bars(medians: dict[str, Any]) -> list[dict[str, Any]]:
    """The promises of the design's Speed section, each held against this run."""
    found = []
    for letter, by_name in medians.items():
        others = {name: row["p50_us"] for name, row in by_name.items() if not name.startswith(OURS)}
        best = min(others.values())
        ours, plain = by_name[OURS]["p50_us"], by_name[OURS_PLAIN]["p50_us"]
        if letter in "abc":
            checks = [(f"p50 on ({letter}) below every peer", ours / best, 1.0)]
        elif letter == "d":
            checks = [("p50 on (d) level with the best", ours / best, 1.1)]
        else:
            checks = [
                ("p50 on (e) below every peer, exact=False", plain / best, 1.0),
                ("p50 on (e) within 1.2 of the best, exact", ours / best, 1.2),
            ]
        found += [{"name": n, "value": round(v, 3), "target": t, "holds": v <= t} for n, v, t in checks]
    return found


def main() -> None:
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quick", action="store_true", help="less than a minute, with more noise")
    parser.add_argument("--only", default="", help="only contenders whose name contains this (and ours)")
    parser.add_argument("--payloads", default="abcde", help="letters of the payloads to measure")
    options = parser.parse_args()
    rounds, latency, stream = (1, 100, 320) if options.quick else (5, 300, 1600)
    letters = options.payloads
    medians, missing = run(letters, rounds, latency, stream, options.only)
    held = bars(medians)
    cores = len(os.sched_getaffinity(0))
    machine = {"cores": cores, "cpu": platform.processor() or platform.machine(), "os": platform.release()}
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for name in ("omni-shmring", "msgspec", "numpy", "msgpack", "pyzmq", "iceoryx2"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if options.json:
        print(
            json.dumps({"machine": machine, "versions": versions, "results": medians, "missing": missing, "bars": held})
        )
        return
    print(f"{machine}\n{versions}\n{rounds} rounds; ratio is one-way p50 against omni-shmring\n")
    for letter, by_name in medians.items():
        print(f"({letter}) {PAYLOADS[letter]}")
        ours = by_name[OURS]["p50_us"]
        for name, row in sorted(by_name.items(), key=lambda item: item[1]["p50_us"]):
            poll = f"  empty poll {row['empty_poll_ns']:.0f} ns" if "empty_poll_ns" in row else ""
            print(
                f"  {name:28s} p50 {row['p50_us']:9.1f} µs  p99 {row['p99_us']:9.1f} µs  {row['per_s']:8.0f}/s"
                f"  cpu {row['cpu_us']:8.1f} µs  ratio {row['p50_us'] / ours:5.2f}{poll}"
            )
    for name, why in missing.items():
        print(f"not run: {name}: {why}")
    for bar in held:
        print(f"{'holds' if bar['holds'] else 'MISSED'}  {bar['name']}: {bar['value']} (target {bar['target']})")
    sys.exit(0)


if __name__ == "__main__":
    main()
