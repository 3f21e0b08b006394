"""Random traffic with cancels, restarts and kills, every message accounted for: python soak.py --minutes 10.

Two producers and two competing receivers run as processes of their own; this process kills and restarts them at random,
and keeps the books from what they log to files. At the end: no message twice, none wrong, none missing that a living
producer had put and not taken back, and memory, descriptors and /dev/shm flat. Exits 1 when anything is off.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np

from omni_shmring import BacklogError, NoSpaceError, Transport, TransportConfig

CONFIG = TransportConfig(ring_bytes=256 << 10, max_pending_bytes=64 << 20, linger_s=0)
PRODUCERS, RECEIVERS = 2, 2


def pattern(key: str, nbytes: int) -> np.ndarray:
    """Bytes that only this key has."""
    seed = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return np.resize(np.frombuffer(seed, np.uint8), nbytes)


def produce(scope: str, name: str, log: str) -> None:
    """Put, put again, cancel, until told to stop; every step is logged before and after."""
    rng = random.Random()
    life = f"{os.getpid()}-{time.monotonic_ns()}"
    with open(log, "a", buffering=1) as book, Transport(name, scope=scope, config=CONFIG) as tx:
        number = 0
        stop = False

        def end(signum: int, frame: object) -> None:
            nonlocal stop
            stop = True

        signal.signal(signal.SIGTERM, end)
        while not stop:
            key = f"{life}:{number}"
            number += 1
            size = int(rng.choice((10, 300, 3_000, 30_000, 100_000, 1_000_000)) * rng.random()) + 1
            try:
                tx.put("sink", key, {"key": key, "data": pattern(key, size), "n": number})
            except (BacklogError, NoSpaceError):
                time.sleep(0.005)
                continue
            book.write(f"put {key}\n")
            if rng.random() < 0.05:
                again = f"{life}:{rng.randrange(number)}"
                book.write(f"cancel {again} {tx.cancel('sink', again)}\n")
            if rng.random() < 0.002:
                book.write(f"prefix {life} {tx.cancel_prefix('sink', life + ':')}\n")
            # The names of what is to be read, a plain way to tell: the receivers follow this.
            tx.put("sink", "latest", (life, number))
            while tx.stats().pending > 200 and not stop:
                time.sleep(0.001)
        deadline = time.monotonic() + 20
        while (left := tx.stats().pending) > 1 and time.monotonic() < deadline:
            time.sleep(0.01)
        book.write(f"end {life} {left}\n")


def receive(scope: str, log: str) -> None:
    """Take whatever the producers speak of; log each message after it has been checked."""
    stop = False

    def end(signum: int, frame: object) -> None:
        nonlocal stop
        stop = True

    signal.signal(signal.SIGTERM, end)
    lives: dict[str, tuple[str, int]] = {}
    with open(log, "a", buffering=1) as book, Transport("sink", scope=scope, config=CONFIG) as rx:
        while not stop:
            for producer in range(PRODUCERS):
                name = f"producer-{producer}"
                told = rx.get(name, "latest")
                if told is not None:
                    lives[told.payload[0]] = (name, told.payload[1])
            took = False
            for life, (name, upto) in list(lives.items())[-6:]:
                for number in range(max(0, upto - 260), upto + 40):
                    key = f"{life}:{number}"
                    got = rx.get(name, key)
                    if got is not None:
                        took = True
                        data = got.payload["data"]
                        right = got.payload["key"] == key and bool((data == pattern(key, len(data))).all())
                        book.write(f"got {key} {right}\n")
            if not took:
                rx.wait("producer-0", "latest-or-timeout", timeout_s=0.02)


def resources(pid: int) -> tuple[int, int]:
    """(resident KiB, open descriptors) of a process; zeros when it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        resident = int(status.split("VmRSS:")[1].split()[0]) if "VmRSS:" in status else 0
        return resident, len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0, 0


def shm_bytes(scope: str) -> int:
    """What the scope takes in /dev/shm."""
    total = 0
    for path in Path("/dev/shm").glob(f"omni-shmring.{os.geteuid()}.{scope}.*/*"):
        try:
            total += path.stat().st_blocks * 512
        except OSError:
            continue
    return total


class Herd:
    """The processes under test."""

    def __init__(self, scope: str, folder: Path) -> None:
        self.scope = scope
        self.folder = folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: set[int] = set()
        self.starts: Counter[str] = Counter()

    def start(self, role: str) -> None:
        self.starts[role] += 1
        log = self.folder / f"{role}.{self.starts[role]}.log"
        arguments = [sys.executable, __file__, "--role", role, "--scope", self.scope, "--log", str(log)]
        self.running[role] = subprocess.Popen(arguments)

    def stop(self, role: str, how: int) -> None:
        process = self.running.pop(role)
        process.send_signal(how)
        process.wait(60)


def account(folder: Path) -> tuple[dict[str, int], list[str]]:
    """Read all logs: totals, and what is wrong."""
    put: set[str] = set()
    got: Counter[str] = Counter()
    cancelled: set[str] = set()
    wrong: list[str] = []
    ended: set[str] = set()
    prefixed: dict[str, int] = {}
    for log in folder.glob("*.log"):
        for line in log.read_text().splitlines():
            word, *rest = line.split()
            if word == "put":
                put.add(rest[0])
            elif word == "got" and len(rest) == 2:
                got[rest[0]] += 1
                if rest[1] != "True":
                    wrong.append(f"wrong content: {rest[0]}")
            elif word == "cancel" and rest[1] == "True":
                cancelled.add(rest[0])
            elif word == "prefix":
                prefixed[rest[0]] = prefixed.get(rest[0], 0) + int(rest[1])
            elif word == "end":
                ended.add(rest[0])
                if int(rest[1]) > 1:
                    wrong.append(f"{rest[1]} messages still pending at the end of {rest[0]}")
    wrong += [f"delivered {count} times: {key}" for key, count in got.items() if count > 1]
    wrong += [f"delivered though cancelled: {key}" for key in cancelled if key in got]
    # Of a producer that ended by itself every message is got, cancelled, or died with a killed receiver.
    missing = Counter(k.split(":")[0] for k in put if k not in got and k not in cancelled)
    unaccounted = {life: n - prefixed.get(life, 0) for life, n in missing.items() if life in ended}
    totals = {"put": len(put), "got": len(got), "cancelled": len(cancelled) + sum(prefixed.values())}
    totals["unaccounted of ended producers"] = sum(n for n in unaccounted.values() if n > 0)
    return totals, wrong


def soak(minutes: float, seed: int) -> int:
    """Run, account, report; the exit status."""
    rng = random.Random(seed)
    scope = f"soak-{os.getpid()}"
    roles = [f"producer-{n}" for n in range(PRODUCERS)] + [f"receiver-{n}" for n in range(RECEIVERS)]
    kills: Counter[str] = Counter()
    samples: list[tuple[float, int, int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        herd = Herd(scope, Path(folder))
        for role in roles:
            herd.start(role)
        started = time.monotonic()
        # receiver-0 lives through it all: its memory and descriptors are the ones that must stay flat.
        while time.monotonic() - started < minutes * 60:
            time.sleep(rng.uniform(0.5, 3))
            resident, descriptors = resources(herd.running["receiver-0"].pid)
            samples.append((time.monotonic() - started, resident, descriptors, shm_bytes(scope)))
            role = rng.choice(roles)
            if role == "receiver-0":
                continue
            how = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
            kills[f"{role.split('-')[0]} {how.name}"] += 1
            herd.stop(role, how)
            herd.start(role)
        for role in roles:
            if role.startswith("producer"):
                herd.stop(role, signal.SIGTERM)
        for role in list(herd.running):
            herd.stop(role, signal.SIGTERM)
        totals, wrong = account(Path(folder))
        with Transport("sweeper", scope=scope):
            pass
        left = list(Path("/dev/shm").glob(f"omni-shmring.{os.geteuid()}.{scope}.*"))
    third = max(1, len(samples) // 3)
    early, late = samples[third : 2 * third], samples[2 * third :]
    flat = {
        name: (max(s[i] for s in early), max(s[i] for s in late))
        for i, name in ((1, "resident KiB"), (2, "descriptors"), (3, "/dev/shm bytes"))
    }
    # A receiver killed between taking a message and logging it takes it along: one a kill at most.
    receiver_kills = kills["receiver SIGKILL"]
    if totals["unaccounted of ended producers"] > receiver_kills:
        wrong.append(f"{totals['unaccounted of ended producers']} messages missing, {receiver_kills} receivers killed")
    if left:
        wrong.append(f"left in /dev/shm: {left}")
    if flat["descriptors"][1] > flat["descriptors"][0] + 8 or flat["resident KiB"][1] > flat["resident KiB"][0] * 1.25:
        wrong.append(f"not flat: {flat}")
    print(f"{minutes:g} minutes, seed {seed}: {totals}; stops {dict(kills)}; second third against last, maxima: {flat}")
    for each in wrong[:20]:
        print("WRONG:", each)
    print("every message accounted for" if not wrong else f"{len(wrong)} faults")
    return int(bool(wrong))


def main() -> None:
    """Parse and run; with --role this is one of the processes under test."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--scope", help=argparse.SUPPRESS)
    parser.add_argument("--log", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role is None:
        sys.exit(soak(options.minutes, options.seed))
    if options.role.startswith("producer"):
        produce(options.scope, options.role, options.log)
    else:
        receive(options.scope, options.log)


if __name__ == "__main__":
    main()
