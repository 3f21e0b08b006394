"""The connector contract over rings, between processes, and behind vLLM-Omni's own base class and factory."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
import types
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omni_serve.connectors import RingConnector, RingConnectorConfig
from omni_serve.connectors.vllm_omni import NAME, connector_class, register_with
from omni_shmring import ClosedError, EncodeError

VLLM_OMNI = "vllm-omni==0.30.0"

RECEIVER = """
import sys, time
from omni_serve.connectors import RingConnector, RingConnectorConfig
connector = RingConnector(RingConnectorConfig(scope=sys.argv[1]))
got = connector.get_with_deadline("thinker", "talker", "req-1:0", deadline_s=time.monotonic() + 30)
connector.put("talker", "thinker", "answer", {"sum": int(got.payload["codes"].sum()), "text": got.payload["text"]})
sys.stdin.read()
connector.close()
"""


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[RingConnector, RingConnector]]:
    config = RingConnectorConfig(scope=f"t-{request.node.name}"[:60], ring_bytes=65536)
    one, two = RingConnector(config), RingConnector(config)
    yield one, two
    one.close()
    two.close()


def test_a_payload_crosses_to_another_process_and_back() -> None:
    scope = "t-crossing"
    connector = RingConnector(RingConnectorConfig(scope=scope))
    with subprocess.Popen([sys.executable, "-c", RECEIVER, scope], stdin=subprocess.PIPE) as receiver:
        try:
            connector.put("thinker", "talker", "req-1:0", {"codes": np.arange(28), "text": "hi"})
            got = connector.get_with_deadline("talker", "thinker", "answer", deadline_s=time.monotonic() + 60)
            assert got is not None
            assert got.payload == {"sum": 378, "text": "hi"}
            assert got.nbytes > 0
        finally:
            receiver.communicate(timeout=30)
            connector.close()


def test_keys_handles_and_cleanup(pair: tuple[RingConnector, RingConnector]) -> None:
    one, two = pair
    assert two.get("a", "b", "k") is None
    _, old = one.put("a", "b", "k", 1)
    _, new = one.put("a", "b", "k", 2)
    assert two.get("a", "b", "k", old) is None, "an old handle never gives a newer publication"
    got = two.get("a", "b", "k", new)
    assert got is not None
    assert got.payload == 2
    for number in range(3):
        one.put("a", "b", f"req-1:{number}", number)
    one.put("a", "b", "req-1:x", "kept")
    one.cleanup_prefix("req-1:")
    assert [two.get("a", "b", f"req-1:{n}") for n in range(3)] == [None] * 3
    one.put("a", "b", "req-2", 1)
    one.cleanup("req-2")
    assert two.get("a", "b", "req-2") is None
    assert one.health().pending == 1
    assert two.get("a", "b", "req-1:x") is not None


def test_a_deadline_that_passes_is_none_and_a_message_wakes(pair: tuple[RingConnector, RingConnector]) -> None:
    one, two = pair
    assert two.get_with_deadline("a", "b", "k", deadline_s=time.monotonic() - 1) is None
    assert two.get_with_deadline("a", "b", "k", deadline_s=time.monotonic() + 0.05) is None
    found: list[Any] = []
    waiter = threading.Thread(
        target=lambda: found.append(two.get_with_deadline("a", "b", "k", deadline_s=time.monotonic() + 60))
    )
    waiter.start()
    one.put("a", "b", "k", b"woken")
    waiter.join()
    assert found[0].payload == b"woken"


def test_a_closed_connector_says_so(pair: tuple[RingConnector, RingConnector]) -> None:
    one, _ = pair
    one.put("a", "b", "k", 1)
    one.close()
    one.close()
    with pytest.raises(ClosedError):
        one.put("a", "b", "k", 1)
    with pytest.raises(ClosedError):
        one.health()


def test_what_cannot_travel_is_refused_with_its_place(pair: tuple[RingConnector, RingConnector]) -> None:
    with pytest.raises(EncodeError, match="payload"):
        pair[0].put("a", "b", "k", {"x": object()})


# -- vLLM-Omni


def test_the_entry_point_is_the_one_vllm_omni_loads() -> None:
    (found,) = entry_points(group="vllm_omni.general_plugins", name="omni_shmring")
    assert found.load().__module__ == "omni_serve.connectors.vllm_omni"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any, Any]]:
    """Base class, factory and connector spec of the published wheel, imported alone.

    The package's own __init__ files import vLLM; its connector base, factory and config do not, so they are imported
    under the name that the factory itself falls back to, with nothing put in place of anything.
    """
    target = tmp_path_factory.mktemp("vllm-omni")
    install = ["uv", "pip", "install", "--quiet", "--no-deps", "--target", str(target), VLLM_OMNI]
    try:
        subprocess.run(install, check=True, capture_output=True, timeout=100)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"needs uv and the wheel of {VLLM_OMNI}: {type(error).__name__}")
    package = types.ModuleType("omni_connectors")
    package.__path__ = [str(Path(target) / "vllm_omni/distributed/omni_connectors")]
    before = set(sys.modules)
    sys.modules["omni_connectors"] = package
    try:
        base = import_module("omni_connectors.connectors.base").OmniConnectorBase
        factory = import_module("omni_connectors.factory").OmniConnectorFactory
        spec = import_module("omni_connectors.utils.config").ConnectorSpec
        yield base, factory, spec
    finally:
        for name in set(sys.modules) - before:
            if name.split(".")[0] == "omni_connectors":
                del sys.modules[name]


def test_vllm_omnis_factory_makes_it_and_its_contract_holds(
    published: tuple[Any, Any, Any], caplog: pytest.LogCaptureFixture
) -> None:
    base, factory, spec = published
    register_with(base, factory)
    register_with(base, factory)
    extra = {"scope": "t-vllm-omni", "stage_id": 1, "ring_bytes": 65536}
    with factory.create_connector(spec(NAME, extra)) as sender, factory.create_connector(spec(NAME, extra)) as receiver:
        assert isinstance(sender, base)
        assert receiver.get("0", "1", "req:0") is None
        ok, size, metadata = sender.put("0", "1", "req:0", {"codes": np.arange(4)})
        assert ok
        assert size == metadata["size"] > 0
        payload, nbytes = receiver.get("0", "1", "req:0", {"req:0": metadata})
        assert payload["codes"].tolist() == [0, 1, 2, 3]
        assert nbytes == size
        sender.put("0", "1", "req:1", 1)
        assert receiver.get("0", "1", "req:1", {"source_host": "elsewhere"})[0] == 1
        sender.put("0", "1", "req:2", 2)
        sender.cleanup("req:2")
        assert receiver.get_with_deadline("0", "1", "req:2", deadline=time.monotonic() + 0.05) is None
        with caplog.at_level(logging.ERROR):
            assert sender.put("0", "1", "req:3", object()) == (False, 0, None)
        assert "req:3" in caplog.text
        assert sender.health()["status"] == "healthy"
        assert not {
            name for name, value in base.__dict__.items() if getattr(value, "__isabstractmethod__", False)
        } - set(connector_class(base).__dict__)
