"""Stage processes: started, watched, started again with a growing pause, and stopped. Local processes.

Everything runs in the event loop of the thread that starts it, which must outlive the stages: the kernel ties a
stage's life to the thread that started it (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from omni_serve.engine.config import EngineConfig
from omni_serve.engine.replicas import Listener, Replica
from omni_serve.errors import StartupError
from omni_serve.stages.spec import Launch, Report, StageSpec

log = logging.getLogger("omni_serve.engine")

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Native thread pools of a part are one thread wide unless the stage's own environment says otherwise."""


class Supervisor:
    """Keeps every replica of every stage running.

    Args:
        specs: The deployment's stages.
        scope: The deployment's scope of the transport.
        config: Limits.
        listener: Told when a replica is up or down.
    """

    def __init__(self, specs: Sequence[StageSpec], scope: str, config: EngineConfig, listener: Listener) -> None:
        self._scope = scope
        self._config = config
        self._listener = listener
        self._stopping = False
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self.replicas = [Replica(spec, f"{spec.name}.{n}") for spec in specs for n in range(spec.replicas)]

    async def start(self, progress: Callable[[str, str, str], None]) -> None:
        """Start everything side by side; raises StartupError, with all of it stopped, when one does not come up.

        Args:
            progress: Called with a replica's name, its state (``progress``, ``ready``, ``failed``) and words.
        """
        starts = [asyncio.ensure_future(self._start(replica, progress)) for replica in self.replicas]
        try:
            await asyncio.gather(*starts)
        except BaseException:
            for one in starts:
                one.cancel()
            await asyncio.gather(*starts, return_exceptions=True)
            await self.stop()
            raise
        for replica in self.replicas:
            self._watch(replica)

    async def stop(self) -> None:
        """Ask every process to leave, kill those that stay. Idempotent."""
        self._stopping = True
        await asyncio.gather(*(self._retire(replica) for replica in self.replicas))

    async def sleep(self, stages: Sequence[str]) -> None:
        """End the processes of these stages and leave them ended."""
        await asyncio.gather(*(self._retire(r) for r in self.replicas if r.spec.name in stages))
        for replica in self.replicas:
            if replica.spec.name in stages:
                replica.detail = "asleep"

    async def wake(self, stage: str, awake: Callable[[], None]) -> None:
        """Start a sleeping stage again and call ``awake``; raises StartupError with the stage still asleep."""
        replicas = [r for r in self.replicas if r.spec.name == stage]
        try:
            await asyncio.gather(*(self._start(r, lambda *_: None) for r in replicas))
        except BaseException:
            await asyncio.gather(*(self._end(r) for r in replicas))
            raise
        awake()
        for replica in replicas:
            self._watch(replica)

    # -- one replica

    async def _start(self, replica: Replica, progress: Callable[[str, str, str], None]) -> None:
        """Launch a replica and wait until it is ready; whoever calls ends its process when that fails."""
        replica.incarnation += 1
        replica.detail = "starting"
        read_fd, write_fd = os.pipe()
        try:
            replica.process = self._spawn(replica, write_fd)
        except OSError as error:
            os.close(read_fd)
            raise StartupError(f"stage {replica.spec.name} cannot be started: {error}") from error
        finally:
            os.close(write_fd)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_fd, "rb")
        )
        try:
            async with asyncio.timeout(self._config.start_limit_s):
                await self._ready(replica, reader, progress)
        except TimeoutError:
            raise StartupError(
                f"stage {replica.name} was not ready after {self._config.start_limit_s:g} s ({replica.detail})"
            ) from None
        finally:
            transport.close()
        replica.ready_s = time.monotonic()
        replica.detail = ""
        self._listener.replica_up(replica)

    def _spawn(self, replica: Replica, report_fd: int) -> subprocess.Popen[bytes]:
        spec = replica.spec
        environment = {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, "1"), **spec.env}
        if spec.env:
            log.info("stage %s: environment sets %s", replica.name, ", ".join(sorted(spec.env)))
        process = subprocess.Popen(
            [sys.executable, "-m", "omni_serve.stages.main", str(report_fd)],
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno() if _has_fileno() else subprocess.DEVNULL,
            pass_fds=(report_fd,),
            env=environment,
        )
        launch = Launch(spec, replica.name, replica.incarnation, self._scope, os.getpid())
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it died at once; the report pipe's end says so
            process.stdin.write(msgspec.json.encode(launch) + b"\n")
            process.stdin.flush()
        return process

    async def _ready(
        self, replica: Replica, reader: asyncio.StreamReader, progress: Callable[[str, str, str], None]
    ) -> None:
        while line := await reader.readline():
            report = msgspec.json.decode(line, type=Report)
            replica.detail = report.text
            progress(replica.name, report.state, report.text)
            if report.state == "ready":
                return
            if report.state == "failed":
                raise StartupError(f"stage {replica.spec.name}: {report.text}")
        process = replica.process
        status = None if process is None else await _exit_status(process)
        progress(replica.name, "failed", f"ended with {_words(status)}")
        raise StartupError(f"stage {replica.spec.name} ended with {_words(status)} before it was ready; see above")

    def _watch(self, replica: Replica) -> None:
        keeping = self._keep(replica)
        self._keepers[replica.name] = asyncio.get_running_loop().create_task(keeping, name=f"keep-{replica.name}")

    async def _retire(self, replica: Replica) -> None:
        """Keep a replica no longer, and end it."""
        keeper = self._keepers.pop(replica.name, None)
        if keeper is not None:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)
        await self._end(replica)

    async def _keep(self, replica: Replica) -> None:
        """Wait for a replica's end, tell, and start it again, for as long as the server runs."""
        pause_s = self._config.backoff_s
        while not self._stopping:
            if replica.process is not None:
                status = await _exit_status(replica.process)
                lived_s = time.monotonic() - replica.ready_s
                replica.restarts += 1
                replica.process = None
                self._listener.replica_down(replica, f"ended with {_words(status)}")
                log.error("stage %s ended with %s after %.1f s", replica.name, _words(status), lived_s)
                if lived_s >= self._config.stable_s:
                    pause_s = self._config.backoff_s
            replica.detail = f"starting again in {pause_s:.1f} s"
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, self._config.max_backoff_s)
            try:
                await self._start(replica, lambda *_: None)
            except StartupError as error:
                await self._end(replica)
                replica.restarts += 1
                replica.detail = str(error)
                log.error("%s", error)

    async def _end(self, replica: Replica) -> None:
        process = replica.process
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(self._config.stop_limit_s):
                await _exit_status(process)
        except TimeoutError:
            log.warning("stage %s did not leave in %g s and is killed", replica.name, self._config.stop_limit_s)
            process.kill()
            await _exit_status(process)
        replica.process = None
        self._listener.replica_down(replica, "stopped")


async def _exit_status(process: subprocess.Popen[bytes]) -> int:
    """Wait for a child without a thread: its pidfd becomes readable when it ends."""
    loop = asyncio.get_running_loop()
    if process.poll() is None:
        pidfd = os.pidfd_open(process.pid)
        ended: asyncio.Future[None] = loop.create_future()
        loop.add_reader(pidfd, _resolve, ended)
        try:
            await ended
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
    status = process.wait()
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
    return status


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _words(status: int | None) -> str:
    if status is not None and status < 0:
        return f"signal {signal.Signals(-status).name}"
    return f"status {status}"


def _has_fileno() -> bool:
    try:
        sys.stderr.fileno()
    except (OSError, ValueError, AttributeError):
        return False
    return True
