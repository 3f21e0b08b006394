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


def receive_side(contender: peers.Contender, ack: Any, latency: int, stream: int, out: Any) -> None:
    """The receiving process: times of arrival with one in flight, then a stream."""
    torch.set_num_threads(1)
    receive = contender.receiver()
    ack.send_bytes(b"ready")
    arrivals = []
    for _ in range(latency):
        touch(receive())
        arrivals.append(time.perf_counter_ns())
        ack.send_bytes(b"1")
    before = time.process_time_ns()
    for number in range(stream):
        touch(receive())
        if number % (WINDOW // 2) == WINDOW // 2 - 1:
            ack.send_bytes(b"1")
    cpu = time.process_time_ns() - before
    poll_ns = None
    if hasattr(contender, "empty_poll"):
        poll = contender.empty_poll()
        poll()
        start = time.perf_counter_ns()
        for _ in range(20_000):
            poll()
        poll_ns = (time.perf_counter_ns() - start) / 20_000
    out.send((arrivals, cpu, poll_ns))
    ack.send_bytes(b"end")
    contender.close()


def send_side(contender: peers.Contender, letter: str, ack: Any, latency: int, stream: int, out: Any) -> None:
    """The sending process."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    tree = payload(letter)
    ack.recv_bytes()
    send = contender.sender()
    sent = []
    for _ in range(latency):
        # The receiver is back in its blocking call by then; both sides of every contender wait the same.
        time.sleep(0.0003)
        sent.append(time.perf_counter_ns())
        send(tree)
        ack.recv_bytes()
    cpu, start = time.process_time_ns(), time.perf_counter_ns()
    granted = WINDOW
    for _ in range(stream):
        if granted == 0:
            ack.recv_bytes()
            granted = WINDOW // 2
        send(tree)
        granted -= 1
    out.send((sent, time.process_time_ns() - cpu, start))
    while ack.recv_bytes() != b"end":
        continue  # torch hands over descriptors as long as it is asked: the sender leaves last
    contender.close()


def measure(contender: peers.Contender, letter: str, latency: int, stream: int) -> dict[str, float]:
    """One round of one contender: p50 and p99 in µs, messages a second, CPU in µs a message, empty poll in ns."""
    context = multiprocessing.get_context("spawn")
    ack_there, ack_here = context.Pipe()
    results_in, out_in = context.Pipe(duplex=False)
    results_out, out_out = context.Pipe(duplex=False)
    processes = [
        context.Process(target=receive_side, args=(contender, ack_there, latency, stream, out_in)),
        context.Process(target=send_side, args=(contender, letter, ack_here, latency, stream, out_out)),
    ]
    for process in processes:
        process.start()
    for end in (ack_there, ack_here, out_in, out_out):
        end.close()  # so that a process that dies is an error here, and not a wait for ever
    try:
        (sent, cpu_out, start), (arrivals, cpu_in, poll_ns) = results_out.recv(), results_in.recv()
        ended = time.perf_counter_ns()
    finally:
        for process in processes:
            process.join(30)
            if process.is_alive():
                process.kill()
                process.join()
    ways = sorted((there - here) / 1000 for here, there in zip(sent, arrivals))[:latency]
    found = {
        "p50_us": statistics.median(ways[len(ways) // 20 :]),
        "p99_us": ways[int(len(ways) * 0.99) - 1],
        "per_s": stream / ((ended - start) / 1e9),
        "cpu_us": (cpu_out + cpu_in) / 1000 / stream,
    }
    if poll_ns is not None:
        found["empty_poll_ns"] = poll_ns
    return found


def run(letters: str, rounds: int, latency: int, stream: int, only: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Medians over rounds: payload letter to contender to numbers."""
    rows: dict[str, dict[str, list[dict[str, float]]]] = {letter: {} for letter in letters}
    missing: dict[str, str] = {}
    for _ in range(rounds):
        for letter in letters:
            found, missing = peers.all_contenders()
            for contender in found:
                if only not in contender.name and not contender.name.startswith(OURS):
                    contender.close()
                    continue
                small = max(1, stream // (8 if letter in "bd" else 1))
                row = rows[letter].setdefault(contender.name, [])
                row.append(measure(contender, letter, latency, small))
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
    rounds, latency, stream = (1, 80, 320) if options.quick else (3, 400, 4000)
    letters = options.payloads if not options.quick or options.payloads != "abcde" else "a"
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
