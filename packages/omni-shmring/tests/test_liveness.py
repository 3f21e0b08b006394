"""A life ends with its process, and with nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omni_shmring import liveness, names
from omni_shmring.liveness import Life, Pulse


def test_a_life_in_another_process(tmp_path: Path, child: Callable[..., Any]) -> None:
    source = """
        import os, subprocess, sys
        from omni_shmring import liveness
        directory = os.open(sys.argv[1], os.O_RDONLY)
        instance = liveness.new_instance()
        life = liveness.Life(directory, "0" * 16, instance, b"note")
        child = os.fork()
        if child == 0:
            sys.stdin.close()
            os.execvp("sleep", ["sleep", "60"])    # a child of the fork does not keep it alive
        print(instance, child, flush=True)
        sys.stdin.readline()
    """
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        each = child(source, str(tmp_path))
        instance, grandchild = map(int, each.line().split())
        with Pulse(directory, "0" * 16, instance) as pulse, Pulse(directory, None, instance) as found:
            assert pulse.beats()
            assert found.beats()
            each.kill()
            assert not pulse.beats()
            assert not found.beats()
        os.kill(grandchild, 9)
    finally:
        os.close(directory)


def test_ones_own_life_is_never_opened(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    try:
        instance = liveness.new_instance()
        assert liveness.is_own(instance)
        life = Life(directory, "0" * 16, instance, b"note")
        for _ in range(2):
            with Pulse(directory, "0" * 16, instance) as pulse:
                assert pulse.beats()
        pid = os.fork()
        if pid == 0:
            # Another process sees the lock: nothing in here has dropped it. And is itself somebody else.
            with Pulse(directory, "0" * 16, instance) as pulse:
                os._exit(0 if pulse.beats() and not liveness.is_own(instance) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        life.close()
        os.unlink(names.life_file("0" * 16, instance), dir_fd=directory)
        with Pulse(directory, "0" * 16, instance) as pulse:
            assert not pulse.beats()
    finally:
        os.close(directory)


def test_instances_differ() -> None:
    instances = {liveness.new_instance() for _ in range(50)}
    assert len(instances) == 50
    assert all(0 < instance < 2**64 - 1 for instance in instances)
