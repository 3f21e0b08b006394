"""torch tensors through the codec."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from omni_shmring import EncodeError, Transport

torch = pytest.importorskip("torch", reason="waits for the torch extra: pip install 'omni-shmring[torch]'")


@pytest.fixture
def through(scope: str) -> Any:
    with Transport("a", scope=scope) as tx, Transport("b", scope=scope) as rx:

        def send(payload: Any) -> Any:
            tx.put("b", "k", payload)
            got = rx.get("a", "k")
            assert got is not None
            return got.payload

        yield send


DTYPES = [
    name for name in (
        "bool", "uint8", "int8", "int16", "int32", "int64", "uint16", "uint32", "uint64", "float16", "float32",
        "float64",
        "bfloat16", "complex64", "complex128", "complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz",
        "float8_e5m2fnuz", "float8_e8m0fnu",
    ) if hasattr(torch, name)
]  # fmt: skip


def raw(tensor: Any) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (40, 50, 60)])
def test_every_dense_dtype(through: Any, name: str, shape: tuple[int, ...]) -> None:
    dtype = getattr(torch, name)
    count = int(np.prod(shape)) * torch.empty((), dtype=dtype).element_size()
    content = torch.randint(0, 2 if name == "bool" else 256, (count,), dtype=torch.uint8)
    tensor = content.view(dtype).reshape(shape) if count else torch.empty(shape, dtype=dtype)
    got = through({"t": tensor})["t"]
    assert (got.dtype, got.shape) == (tensor.dtype, tensor.shape)
    if count:
        assert raw(got) == raw(tensor)


STRIDED = {
    "sliced": torch.arange(24).view(2, 3, 4)[::1, :, ::2].transpose(0, 2),
    "transposed": torch.arange(6.0).view(2, 3).t(),
    "permuted": torch.randn(2, 3, 4, 5).permute(3, 1, 0, 2),
    "channels last": torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last),
    "step": torch.arange(20)[3::4],
    "conjugate": torch.randn(5, dtype=torch.complex64).conj(),
    "negated": torch.randn(5, dtype=torch.complex64).conj().imag,
    "expanded rows": torch.arange(3).expand(4, 3),
    "expanded inner": torch.arange(3.0).view(3, 1).expand(3, 1000),
    "overlapping": torch.arange(10).unfold(0, 3, 1),
    "empty strided": torch.empty(0, 3).t(),
    "ones": torch.ones(1, 1, 5, 1).transpose(1, 2),
    "bfloat16 transposed": torch.randn(3, 4).bfloat16().t(),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strides(through: Any, name: str) -> None:
    tensor = STRIDED[name]
    got = through([tensor])[0]
    assert got.dtype == tensor.dtype
    assert torch.equal(got, tensor)
    if name in ("transposed", "permuted", "channels last", "expanded rows"):
        assert got.stride() == tensor.stride()


def test_an_expanded_tensor_is_not_materialised(scope: str) -> None:
    with Transport("a", scope=scope) as tx:
        assert tx.put("b", "k", torch.zeros(1).expand(1_000_000)).nbytes < 1000
        assert tx.put("b", "k", torch.zeros(1, 50, 1).expand(1000, 50, 1000)).nbytes < 1000
        tx.close(linger_s=0)


def test_the_same_tensor_twice_is_one_tensor(through: Any) -> None:
    tensor = torch.arange(3)
    got = through({"a": tensor, "b": (tensor, [tensor]), "c": torch.arange(3)})
    assert got["a"] is got["b"][0]
    assert got["a"] is got["b"][1][0]
    assert got["a"] is not got["c"]
    got["a"][0] = 9
    assert got["c"][0] == 0


REFUSED = {
    "requires grad": (lambda: torch.zeros(1, requires_grad=True), "detach"),
    "parameter": (lambda: torch.nn.Parameter(torch.zeros(1), requires_grad=False), "Parameter"),
    "meta": (lambda: torch.zeros(1, device="meta"), "meta"),
    "sparse": (lambda: torch.eye(3).to_sparse(), "sparse"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_lose_its_meaning_is_refused(through: Any, name: str) -> None:
    make, word = REFUSED[name]
    with pytest.raises(EncodeError, match=word) as caught:
        through({"hidden": [0, make()]})
    assert caught.value.path == "payload['hidden'][1]"


def test_received_tensors_are_writable_and_apart(through: Any) -> None:
    first, second = through(torch.zeros(5)), through(torch.zeros(5))
    first += 1
    assert second.sum() == 0


def test_plain_use_never_imports_torch(scope: str) -> None:
    source = f"""
import sys
import numpy as np
from omni_shmring import Transport
with Transport("a", scope={scope!r}) as tx, Transport("b", scope={scope!r}) as rx:
    tx.put("b", "k", {{"x": np.arange(3), "y": (1, 2)}})
    assert rx.get("a", "k").payload["y"] == (1, 2)
    import omni_shmring.cli
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", source], check=True)


def test_a_tensor_where_torch_is_missing_says_so(scope: str) -> None:
    with Transport("a", scope=scope) as tx:
        tx.put("b", "k", {"t": torch.arange(3)})
        source = f"""
import sys
sys.modules["torch"] = None
from omni_shmring import DecodeError, Transport
with Transport("b", scope={scope!r}) as rx:
    try:
        rx.get("a", "k")
    except DecodeError as error:
        assert "omni-shmring[torch]" in str(error) and "['t']" in str(error), error
    else:
        raise SystemExit("no error")
"""
        subprocess.run([sys.executable, "-c", source], check=True)
