"""What survives: real processes killed, stopped, forked; no room; other namespaces; damage."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from omni_shmring import (
    DamagedError,
    NoSpaceError,
    ScopeError,
    Transport,
    TransportConfig,
    names,
)

Open = Callable[..., Transport]

SMALL_RING = TransportConfig(ring_bytes=16384, linger_s=0)


def in_child(line: int, prepare: Callable[[], object], action: Callable[[object], object]) -> tuple[int, int]:
    """Fork, prepare, then run an action until the ``line``-th line of this package kills the child.

    Every line is a place to die, and what died had no chance to tidy up. Returns the exit status (negative for a
    signal) and how many lines the action has.
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        count = 0

        def each_line(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal count
            if "omni_shmring" not in frame.f_code.co_filename:
                return None
            if event == "line":
                count += 1
                if count == line:
                    os.kill(os.getpid(), signal.SIGKILL)
            return each_line

        status = 1
        try:
            prepared = prepare()
            sys.settrace(each_line)
            action(prepared)
            sys.settrace(None)
            os.write(writer, str(count).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    said = os.read(reader, 20)
    os.close(reader)
    return status, int(said or 0)


def some_lines(lines: int, wanted: int) -> list[int]:
    """Line numbers over the whole of an action. The last few may not come in every run (a retry more or less)."""
    return sorted({1, 2, 3, *range(4, lines - lines // 20, max(1, lines // wanted))})


def scope_path(scope: str) -> str:
    return os.path.join("/dev/shm", names.scope_directory(scope, os.geteuid()))


def open_victim(scope: str) -> Transport:
    return Transport("victim", scope=scope, config=SMALL_RING)


def put_three(tx: Any) -> None:
    """A message in the ring, its replacement outside, another in the ring."""
    tx.put("peer", "k:1", 1)
    tx.put("peer", "k:1", bytes(9000))
    tx.put("peer", "k:2", 2)


@pytest.mark.parametrize("phase", ["open", "put", "cancel", "close"])
def test_a_producer_killed_anywhere_leaves_nothing_and_delivers_nothing(scope: str, phase: str) -> None:
    def prepare() -> object:
        if phase == "open":
            return None
        tx = open_victim(scope)
        if phase != "put":
            put_three(tx)
        return tx

    def action(tx: Any) -> None:
        if phase == "open":
            open_victim(scope)
        elif phase == "put":
            put_three(tx)
        elif phase == "cancel":
            tx.cancel_prefix("peer", "k:")
        else:
            tx.close()

    status, lines = in_child(-1, prepare, action)
    assert (status, lines > 50) == (0, True)
    with Transport("peer", scope=scope) as rx:
        for line in some_lines(lines, 60):
            assert in_child(line, prepare, action)[0] == -signal.SIGKILL, line
            for key in ("k:1", "k:2"):
                assert rx.get("victim", key) is None, (line, key)
        # A successor under the same name is served at once, and finds the place clean.
        with Transport("victim", scope=scope) as successor:
            left = {names.owner_of(name) for name in os.listdir(scope_path(scope))} - {None}
            assert left == {rx._member.instance, successor._member.instance}
            successor.put("peer", "k:1", "new")
            got = rx.get("victim", "k:1")
            assert got is not None
            assert got.payload == "new"
            assert rx.get("victim", "k:2") is None
    assert not os.path.exists(scope_path(scope))


def test_a_receiver_killed_anywhere_leaves_the_frame_or_has_taken_it(scope: str) -> None:
    with Transport("peer", scope=scope, config=SMALL_RING) as tx:

        def attempt(line: int) -> tuple[int, int]:
            tx.put("victim", "small", "s" * 100)
            tx.put("victim", "large", "l" * 9000)
            return in_child(
                line, lambda: open_victim(scope), lambda rx: [rx.get("peer", "small"), rx.get("peer", "large")]
            )

        assert attempt(-1)[0] == 0
        status, lines = attempt(-1)  # as all later ones: its predecessor has left the index to be searched
        assert status == 0
        outcomes = set()
        # The first lines attach and look through the index; the taking itself is in the last ones: all of those.
        for line in (*range(1, lines - 150, 20), *range(lines - 150, lines - 2)):
            if attempt(line)[0] == 0:
                continue  # it was through before: a retry less than in the run that was counted
            taken = 2 - tx.stats().pending
            outcomes.add(taken)
            with Transport("victim", scope=scope) as successor:
                got = [successor.get("peer", key) for key in ("small", "large")]
                assert [g is None for g in got].count(True) == taken, line
                assert all(g.payload in ("s" * 100, "l" * 9000) for g in got if g is not None)
        assert outcomes == {0, 1, 2}
        assert tx.stats().pending == 0
        assert tx.stats().edges[0].ring_used_bytes == 0


def test_everything_killed_a_hundred_times_is_reaped_at_the_next_start(scope: str, child: Callable[..., Any]) -> None:
    source = """
        import sys
        from omni_shmring import Transport
        a, b = Transport("a", scope=sys.argv[1]), Transport("b", scope=sys.argv[1])
        for n in range(20):
            a.put("b", f"k:{n}", bytes(100_000 * (n % 3) + 5))
        print("ready", flush=True)
        sys.stdin.readline()
    """
    for _ in range(12):
        each = child(source, scope)
        assert each.line() == "ready"
        each.kill()
        # What one life leaves is gone before the next adds its own.
        assert len(os.listdir(scope_path(scope))) < 40
    with Transport("c", scope=f"{scope}-other"):  # any transport of this user will do
        assert not os.path.exists(scope_path(scope))


@pytest.mark.parametrize("how", ["many", "large"])
def test_files_reaped_before_a_receiver_looked_are_no_damage(scope: str, how: str) -> None:
    def prepare() -> Transport:
        return Transport("a", scope=scope, config=SMALL_RING)

    def die(tx: Any) -> None:
        # More than the first part of the index holds, or outside the ring.
        for number in range(300 if how == "many" else 3):
            tx.put("b", f"k:{number}", bytes(1 if how == "many" else 50_000))
        os.kill(os.getpid(), signal.SIGKILL)

    with Transport("b", scope=scope) as rx, Transport("other", scope=scope) as other:
        with prepare() as first:
            first.put("b", "before", 1)
            assert rx.get("a", "before") is not None
            assert in_child(-1, prepare, die)[0] == -signal.SIGKILL
            rx._receiver.may_be_there("a", b"k:0")  # attached, and then the files go
            assert other._member.reap() > 0
            assert rx.get("a", "k:0") is None
            first.put("b", "after", 2)
            assert rx.get("a", "after") is not None


def test_a_stopped_receiver_holds_up_nobody(scope: str, child: Callable[..., Any]) -> None:
    source = """
        import os, signal, sys
        from omni_shmring import Transport
        from omni_shmring.codec import frame

        def stop(frame, event, argument):
            # Between claiming a frame and letting it go: stopped inside the critical section.
            if frame.f_code.co_name == "copy_out":
                sys.settrace(None)
                print("stopped", flush=True)
                os.kill(os.getpid(), signal.SIGSTOP)

        rx = Transport("b", scope=sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        sys.settrace(stop)
        got = rx.get("a", "first")
        print("got", got and got.payload, flush=True)
        sys.stdin.readline()
    """
    config = TransportConfig(ring_bytes=8192)
    with Transport("a", scope=scope, config=config) as tx, Transport("b", scope=scope) as other:
        stopped = child(source, scope)
        assert stopped.line() == "ready"
        tx.put("b", "first", "one")
        stopped.say()
        assert stopped.line() == "stopped"
        os.waitid(os.P_PID, stopped.process.pid, os.WSTOPPED | os.WNOWAIT)
        assert other.get("a", "first") is None  # somebody alive is at it
        assert tx.cancel("b", "first") is False  # so it cannot be said that nobody gets it
        for number in range(100):
            tx.put("b", f"more:{number}", bytes(1000))
        for number in range(100):
            assert other.get("a", f"more:{number}") is not None
        stopped.process.send_signal(signal.SIGCONT)
        assert stopped.line() == "got one"
        stopped.say()
        assert stopped.finish() == 0
        assert tx.stats().edges[0].ring_used_bytes == 0


def test_competing_receivers_get_each_message_once(scope: str, child: Callable[..., Any]) -> None:
    source = """
        import sys
        from omni_shmring import Transport
        rx = Transport("b", scope=sys.argv[1])
        print("ready", flush=True)
        sys.stdin.readline()
        mine = []
        while len(mine) < 10_000:
            done = rx.get("a", "done:" + sys.argv[2])
            for n in range(600):
                got = rx.get("a", f"m:{n}")
                if got is not None:
                    assert got.payload == n
                    mine.append(n)
            if done is not None:
                break
        print(*mine, flush=True)
    """
    receivers = [child(source, scope, str(number)) for number in range(4)]
    with Transport("a", scope=scope, config=TransportConfig(ring_bytes=16384)) as tx:
        for each in receivers:
            assert each.line() == "ready"
        for each in receivers:
            each.say()
        for number in range(600):
            tx.put("b", f"m:{number}", number)
        while tx.stats().pending:
            os.sched_yield()
        for number in range(4):
            tx.put("b", f"done:{number}", True)
        taken = [int(word) for each in receivers for word in each.line().split()]
        assert sorted(taken) == list(range(600))
        assert [each.finish() for each in receivers] == [0] * 4


def in_small_shm(source: str, size: str = "1m") -> subprocess.CompletedProcess[str]:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("waits for root and unshare(1), to mount a small tmpfs over /dev/shm")
    mounted = f'mount -t tmpfs -o size={size} tmpfs /dev/shm && exec {sys.executable} -c "$0"'
    found = subprocess.run(
        ["unshare", "-m", "sh", "-c", mounted, textwrap.dedent(source)], capture_output=True, text=True, check=False
    )
    if "ermission denied" in found.stderr or "not permitted" in found.stderr:
        pytest.skip("waits for the right to mount in a namespace of one's own")
    return found


def test_one_mebibyte_of_shared_memory(scope: str) -> None:
    source = """
        import os
        from omni_shmring import NoSpaceError, Transport
        with Transport("a", scope="s") as tx, Transport("b", scope="s") as rx:
            tx.put("b", "small", 1)                      # no room for a ring of 4 MiB: it falls back
            assert rx.get("a", "small").payload == 1
            assert tx.stats().edges[0].ring_bytes == 0
            try:
                tx.put("b", "large", bytes(2 << 20))
            except NoSpaceError as error:
                assert error.need_bytes >= 2 << 20 and 0 < error.room_bytes < 1 << 20, error
            else:
                raise SystemExit("no error")
            number = 0
            try:
                while True:                              # until nothing fits any more
                    tx.put("b", f"fill:{number}", bytes(50_000))
                    number += 1
            except NoSpaceError:
                pass
            assert number > 10
            for n in range(number):
                assert len(rx.get("a", f"fill:{n}").payload) == 50_000
            tx.put("b", "again", bytes(500_000))
            assert len(rx.get("a", "again").payload) == 500_000
            os.system("mount -o remount,size=16m /dev/shm")
            tx.put("b", "ring", 2)                       # room has returned
            assert tx.stats().edges[0].ring_bytes == 4 << 20
            assert rx.get("a", "ring").payload == 2
            assert tx.stats().segment_puts == number + 2
        assert os.listdir("/dev/shm") == []
        print("fine")
    """
    found = in_small_shm(source)
    assert (found.returncode, found.stdout.strip()) == (0, "fine"), found.stderr
    assert found.stderr.count("runs without a ring") <= 1


def test_no_room_for_a_page(scope: str) -> None:
    found = in_small_shm(
        """
        from omni_shmring import NoSpaceError, Transport
        with open("/dev/shm/filler", "wb") as filler:
            try:
                filler.write(bytes(1 << 20)); filler.flush()
            except OSError:
                pass
        try:
            Transport("a", scope="s")
        except NoSpaceError as error:
            print("refused")
        import os
        os.unlink("/dev/shm/filler")
        with Transport("a", scope="s"):
            print("fine")
        print(os.listdir("/dev/shm"))
        """,
        "64k",
    )
    assert found.stdout.split("\n")[:3] == ["refused", "fine", "[]"], found.stderr


def test_two_pid_namespaces(scope: str, child: Callable[..., Any]) -> None:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("waits for root and unshare(1), to start a PID namespace")
    source = """
        import os, sys
        from omni_shmring import Transport
        with Transport("inner", scope=sys.argv[1]) as t:
            print(os.getpid(), flush=True)
            got = t.wait("outer", "ping", timeout_s=30)
            t.put("outer", "pong", got.payload + 1)
            sys.stdin.readline()
            print(t.stats().reaped, flush=True)
    """
    inner = child(source, scope, wrap=("unshare", "--pid", "--fork", "--kill-child"))
    first = inner.line()
    if not first:
        pytest.skip("waits for the right to start a PID namespace")
    assert first == "1"
    with Transport("outer", scope=scope) as outer, Transport("third", scope=scope):
        outer.put("inner", "ping", 41)
        got = outer.wait("inner", "pong", timeout_s=30)
        assert got is not None
        assert got.payload == 42
        assert outer._member.reap() == 0  # nobody is declared dead
        inner.say()
        assert inner.line() == "0"
        assert inner.finish() == 0


def test_a_new_process_with_a_dead_ones_pid_is_not_taken_for_it(scope: str, child: Callable[..., Any]) -> None:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        pytest.skip("waits for root and unshare(1), to give two processes one PID")
    source = """
        import os, sys
        from omni_shmring import Transport
        t = Transport("a", scope=sys.argv[1])
        if sys.argv[2] == "first":
            t.put("b", "k", "old")
        print(os.getpid(), flush=True)
        sys.stdin.readline()
    """
    wrap = ("unshare", "--pid", "--fork", "--kill-child")
    with Transport("b", scope=scope) as rx:
        first = child(source, scope, "first", wrap=wrap)
        pid = first.line()
        if not pid:
            pytest.skip("waits for the right to start a PID namespace")
        first.kill()
        second = child(source, scope, "second", wrap=wrap)
        assert second.line() == pid == "1"
        assert rx.get("a", "k") is None


def test_a_receiver_that_exits_leaves_the_producers_files(scope: str, child: Callable[..., Any]) -> None:
    source = """
        import os, signal, sys
        from multiprocessing import resource_tracker
        from omni_shmring import Transport
        rx = Transport("b", scope=sys.argv[1])
        if sys.argv[2] == "tracker":
            resource_tracker.ensure_running()
        assert rx.get("a", "one").payload is not None
        if sys.argv[2] == "tracker":
            os.kill(resource_tracker._resource_tracker._pid, signal.SIGKILL)
    """
    with Transport("a", scope=scope) as tx:
        for how in ("normal", "tracker"):
            tx.put("b", "one", bytes(2 << 20))
            tx.put("b", "two", bytes(2 << 20))
            each = child(source, scope, how)
            assert each.finish() == 0
            with Transport("b", scope=scope) as rx:
                assert rx.get("a", "one") is None
                assert rx.get("a", "two") is not None


@pytest.mark.parametrize("how", ["mode", "symlink", "file", "owner"])
def test_a_directory_that_cannot_be_trusted_is_refused(scope: str, how: str, tmp_path: Path) -> None:
    path = tmp_path / names.scope_directory(scope, os.geteuid())
    if how == "mode":
        path.mkdir()
        path.chmod(0o777)
    elif how == "symlink":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "elsewhere")
    elif how == "file":
        path.write_text("")
    else:
        if os.geteuid() != 0:
            pytest.skip("waits for root, to give a directory to another user")
        path.mkdir(mode=0o700)
        os.chown(path, 12345, -1)
    expected = {"mode": "0777", "symlink": "a symlink", "file": "not a directory", "owner": "user 12345"}[how]
    with pytest.raises(ScopeError, match=expected) as caught:
        Transport("a", scope=scope, config=TransportConfig(root=str(tmp_path)))
    assert caught.value.path == str(path)
    if path.is_symlink():
        assert os.listdir(tmp_path / "elsewhere") == []


def damage(scope: str, offset: int, value: int) -> None:
    source = f".{names.digest('a')}."
    (ring,) = [name for name in os.listdir(scope_path(scope)) if name.startswith("ring.") and source in name]
    with open(os.path.join(scope_path(scope), ring), "r+b") as file:
        file.seek(offset)
        before = file.read(1)
        file.seek(offset)
        file.write(bytes([before[0] ^ value]))


def damaged_offsets() -> list[int]:
    from omni_shmring.layout import BODY_BYTES, Geometry

    geometry = Geometry.for_ring(8192)
    last = geometry.slots - 64  # the first slot handed out
    index = geometry.index
    header = [*range(48), *range(64, 72), *range(128, 136)]
    slot = [8 * index.marks + 8 * last + n for n in range(8)] + [8 * index.claims + 8 * last + n for n in range(8)]
    body = [index.bodies + BODY_BYTES * last + n for n in range(48)]
    frame = [geometry.data_offset + n for n in range(64)]
    return header + slot + body + frame


@pytest.mark.parametrize("attached", [False, True], ids=["before-attaching", "while-attached"])
def test_damage_at_every_offset_is_one_clear_error_and_the_edge_recovers(scope: str, attached: bool) -> None:
    outcomes = {"error": 0, "delivered": 0, "absent": 0}
    with Transport("b", scope=scope) as rx, Transport("sound", scope=scope) as sound:
        for offset in damaged_offsets():
            tx = Transport("a", scope=scope, config=TransportConfig(ring_bytes=8192, linger_s=0))
            if attached:
                tx.put("b", "before", 0)
                assert rx.get("a", "before") is not None
            tx.put("b", "k", {"x": [1, 2, 3], "y": "text"})
            damage(scope, offset, 0x55)
            try:
                got = rx.get("a", "k")
            except DamagedError:
                outcomes["error"] += 1
            else:
                # A word that this side does not read again, or one that only means "not now".
                outcomes["absent" if got is None else "delivered"] += 1
                assert got is None or got.payload == {"x": [1, 2, 3], "y": "text"}, offset
            sound.put("b", "k", "sound")
            assert rx.get("sound", "k") is not None  # other channels go on
            for number in range(3):  # and this one has begun again by its next message, or the one after an error
                tx.put("b", f"next:{number}", number)
                try:
                    found = rx.get("a", f"next:{number}")
                except DamagedError:
                    continue
                if found is not None:
                    break
            else:
                pytest.fail(f"the edge did not recover from damage at {offset}")
            tx.close(linger_s=0)
    assert outcomes["error"] > 80, outcomes


def test_a_pickle_in_place_of_a_frame_runs_nothing(scope: str, tmp_path: Path) -> None:
    import pickle

    from omni_shmring.layout import Geometry

    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return (open, (str(tmp_path / "written"), "w"))

    with Transport("a", scope=scope, config=TransportConfig(ring_bytes=8192)) as tx, Transport("b", scope=scope) as rx:
        tx.put("b", "k", bytes(500))
        (ring,) = [name for name in os.listdir(scope_path(scope)) if name.startswith("ring.")]
        with open(os.path.join(scope_path(scope), ring), "r+b") as file:
            file.seek(Geometry.for_ring(8192).data_offset)
            file.write(pickle.dumps(Attack()))
        with pytest.raises(DamagedError):
            rx.get("a", "k")
        assert not (tmp_path / "written").exists()


def test_leases_held_make_puts_fall_back_and_closing_them_restores_the_ring(scope: str) -> None:
    config = TransportConfig(ring_bytes=16384)
    with Transport("a", scope=scope, config=config) as tx, Transport("b", scope=scope) as rx:
        leases = []
        for number in range(20):
            tx.put("b", f"k:{number}", bytes(3000))
            lease = rx.lease("a", f"k:{number}")
            assert lease is not None
            leases.append(lease)
        assert tx.stats().segment_puts > 0
        assert all(lease.payload == bytes(3000) for lease in leases)
        for lease in leases:
            lease.close()
        before = tx.stats().segment_puts
        assert tx.stats().edges[0].ring_used_bytes == 0
        for number in range(4):
            tx.put("b", f"after:{number}", bytes(3000))
        assert tx.stats().segment_puts == before
        tx.close(linger_s=0)


def test_a_lease_whose_holder_dies_goes_to_the_next(scope: str, child: Callable[..., Any]) -> None:
    source = """
        import sys
        from omni_shmring import Transport
        rx = Transport("b", scope=sys.argv[1])
        lease = rx.lease("a", "k"), rx.lease("a", "large")
        print("held" if all(lease) else "none", flush=True)
        sys.stdin.readline()
    """
    with Transport("a", scope=scope) as tx, Transport("b", scope=scope) as rx:
        tx.put("b", "k", 1)
        tx.put("b", "large", bytes(2 << 20))
        holder = child(source, scope)
        assert holder.line() == "held"
        assert rx.get("a", "k") is None
        holder.kill()
        assert rx.get("a", "k") is not None
        assert rx.get("a", "large") is not None


def test_a_wait_of_nothing_costs_almost_nothing(scope: str) -> None:
    with Transport("b", scope=scope) as rx, Transport("a", scope=scope):
        rx.wait("a", "k", timeout_s=0.1)
        before = time.thread_time()
        assert rx.wait("a", "k", timeout_s=3) is None
        assert time.thread_time() - before < 0.03 * 3  # CPU time, not elapsed: 1 % with room for a loaded machine


def test_opening_waits_for_the_scopes_lock_and_holds_up_nobody_inside(scope: str) -> None:
    import fcntl

    with Transport("a", scope=scope) as held:
        fd = os.open(scope_path(scope), os.O_RDONLY)
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            done = threading.Event()

            def open_another() -> None:
                with Transport("b", scope=scope):
                    done.set()

            thread = threading.Thread(target=open_another)
            thread.start()
            assert held.get("b", "k") is None  # who is in goes on
            held.put("b", "k", 1)
            assert not done.is_set()
        finally:
            os.close(fd)
        thread.join()
        assert done.is_set()
        held.close(linger_s=0)


def test_a_scope_with_nobody_left_is_opened_again_under_the_same_names() -> None:
    name = f"again-{secrets.token_hex(4)}"
    for _ in range(3):
        with Transport("a", scope=name) as tx, Transport("b", scope=name) as rx:
            tx.put("b", "k", 1)
            assert rx.get("a", "k") is not None
    assert not os.path.exists(scope_path(name))


def test_no_room_for_a_segment_is_an_error_with_both_numbers(scope: str) -> None:
    error = NoSpaceError("a frame", 100, 10)
    assert (error.need_bytes, error.room_bytes) == (100, 10)
    assert isinstance(error, OSError)
    assert "100" in str(error)
