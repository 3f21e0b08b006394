"""The three modes of a loader, and the one object that says what came of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from omni_hwr.config import MapOptions, ProgressCallback, Verify
from omni_hwr.errors import DeniedError, MissingError, StorageError, WeightStoreError
from omni_hwr.key import WeightKey
from omni_hwr.lease import Lease
from omni_hwr.producer import Producer, StreamProducer

if TYPE_CHECKING:
    from omni_hwr.store import WeightStore

Mode = Literal["disabled", "preferred", "required"]
Outcome = Literal["hit", "joined", "built", "missed", "denied", "failed"]


@dataclass(frozen=True)
class Resolution:
    """What a resolution came to.

    Attributes:
        outcome: ``hit``, ``joined`` and ``built`` come with a lease; ``missed``, ``denied`` and ``failed`` do not.
        lease: To be closed by the caller.
        tensors: What to load from: the lease's tensors, or what the producer loaded where the store could not keep it.
            None where the caller has to load by itself.
        code: The error's code; None where nothing went wrong.
        stage: ``lease``, ``load`` or ``publish``: where it went wrong, or the last one that went well.
        retry: Whether the same call may do better later without anybody's doing.
        message: What happened and what to do, for a log.
        lease_s, load_s, publish_s: Time spent looking up and mapping, in the producer, and in writing.
    """

    outcome: Outcome
    lease: Lease | None
    tensors: Mapping[str, torch.Tensor] | None
    code: str | None
    stage: Literal["lease", "load", "publish"]
    retry: bool
    message: str
    lease_s: float
    load_s: float
    publish_s: float

    def __enter__(self) -> Resolution:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self.lease is not None:
            self.lease.close()


class _Loading:
    """Calls a mapping producer, keeps what it loaded and how long it took, and tells its faults from the store's."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.loaded: Mapping[str, torch.Tensor] | None = None
        self.fault: BaseException | None = None
        self.seconds = 0.0

    def __call__(self) -> Mapping[str, torch.Tensor]:
        assert not isinstance(self._producer, StreamProducer)
        started = time.monotonic()
        try:
            self.loaded = self._producer()
        except BaseException as fault:
            self.fault = fault
            raise
        finally:
            self.seconds = time.monotonic() - started
        return self.loaded


def resolve(
    store: WeightStore,
    key: WeightKey,
    mode: Mode,
    producer: Producer | None,
    progress: ProgressCallback,
    verify: Verify,
    mapping: MapOptions,
) -> Resolution:
    """Find the weights of ``key`` as ``mode`` says.

    * ``disabled`` touches nothing of the store: a mapping producer is called, the outcome is ``missed``.
    * ``preferred`` uses a hit; else loads with ``producer`` and publishes. No fault of the store is raised: the
      outcome is ``failed`` and ``tensors`` is what the producer loaded. Without a producer the outcome of a look-up
      that finds nothing is ``missed`` or ``denied``.
    * ``required`` takes an exact hit only.

    What a mapping producer raises passes through in every mode, since loading as usual would raise it too. A streaming
    producer only serves the publication, so its faults count as the store's.

    Raises:
        WeightStoreError: In mode ``required``, whatever kept the hit from being served.
        ValueError: ``mode`` is none of the three.
    """
    if mode == "disabled":
        return _disabled(producer)
    if mode == "required":
        return _required(store, key, verify, mapping)
    if mode == "preferred":
        return _preferred(store, key, producer, progress, verify, mapping)
    raise ValueError(f"mode is {mode!r}, not 'disabled', 'preferred' or 'required'")


def _disabled(producer: Producer | None) -> Resolution:
    loading = _Loading(producer) if producer is not None and not isinstance(producer, StreamProducer) else None
    tensors = loading() if loading is not None else None
    seconds = loading.seconds if loading is not None else 0.0
    message = "the store is disabled; load as usual"
    return Resolution("missed", None, tensors, None, "load", False, message, 0.0, seconds, 0.0)


def _required(store: WeightStore, key: WeightKey, verify: Verify, mapping: MapOptions) -> Resolution:
    started = time.monotonic()
    lease = store.lease(key, verify=verify, mapping=mapping)
    if lease is None:
        raise MissingError(key.digest)
    spent = time.monotonic() - started
    return Resolution("hit", lease, lease.tensors, None, "lease", False, "found", spent, 0.0, 0.0)


def _preferred(
    store: WeightStore,
    key: WeightKey,
    producer: Producer | None,
    progress: ProgressCallback,
    verify: Verify,
    mapping: MapOptions,
) -> Resolution:
    started = time.monotonic()
    denied: DeniedError | None = None
    try:
        lease = store.lease(key, verify=verify, mapping=mapping)
    except DeniedError as fault:
        lease, denied = None, fault
    except (WeightStoreError, OSError, MemoryError) as fault:
        return _failed(fault, "lease", _load(producer), time.monotonic() - started, 0.0)
    looked_s = time.monotonic() - started
    if lease is not None:
        return Resolution("hit", lease, lease.tensors, None, "lease", False, "found", looked_s, 0.0, 0.0)
    if producer is None:
        missing: WeightStoreError = denied or MissingError(key.digest)
        outcome: Outcome = "denied" if denied else "missed"
        return Resolution(outcome, None, None, missing.code, "lease", missing.retry, str(missing), looked_s, 0.0, 0.0)
    return _build(store, key, producer, progress, verify, mapping, looked_s)


def _build(
    store: WeightStore,
    key: WeightKey,
    producer: Producer,
    progress: ProgressCallback,
    verify: Verify,
    mapping: MapOptions,
    looked_s: float,
) -> Resolution:
    streams = isinstance(producer, StreamProducer)
    loading = _Loading(producer)
    started = time.monotonic()
    try:
        lease = store.get_or_build(
            key, producer if streams else loading, progress=progress, verify=verify, mapping=mapping
        )
    except Exception as fault:
        if fault is loading.fault:
            raise
        if not streams and loading.loaded is None:
            loading()
        return _failed(fault, "publish", loading, looked_s, time.monotonic() - started - loading.seconds)
    spent = time.monotonic() - started - loading.seconds
    message = {"hit": "found", "joined": "built by another process meanwhile", "built": "built and published"}
    return Resolution(
        lease.source,
        lease,
        lease.tensors,
        None,
        "publish",
        False,
        message[lease.source],
        looked_s,
        loading.seconds,
        spent,
    )


def _load(producer: Producer | None) -> _Loading | None:
    if producer is None or isinstance(producer, StreamProducer):
        return None
    loading = _Loading(producer)
    loading()
    return loading


def _failed(
    fault: Exception,
    stage: Literal["lease", "publish"],
    loading: _Loading | None,
    lease_s: float,
    publish_s: float,
) -> Resolution:
    known = fault if isinstance(fault, WeightStoreError) else None
    code = known.code if known is not None else StorageError.code
    message = f"{fault}" if known is not None else f"{type(fault).__name__}: {fault}"
    tensors = loading.loaded if loading is not None else None
    seconds = loading.seconds if loading is not None else 0.0
    retry = known.retry if known is not None else False
    return Resolution("failed", None, tensors, code, stage, retry, message, lease_s, seconds, publish_s)
