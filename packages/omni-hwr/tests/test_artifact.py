"""A hostile or damaged store: each tampering is refused with its own reason, denied to all, and replaced."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from omni_hwr import StoreConfig, WeightKey, WeightStore
from omni_hwr.digests import digest_bytes
from omni_hwr.errors import BusyError, DeniedError
from omni_hwr.locks import try_lock

Weights = dict[str, torch.Tensor]
Tamper = Callable[[Path], None]


def write(path: Path, data: bytes) -> None:
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    path.chmod(0o400)


def payload(folder: Path) -> Path:
    return folder / "model-00001-of-00003.safetensors"


def forge(folder: Path, change: Callable[[dict[str, list[list[object]]]], None], text: bytes | None = None) -> None:
    """Change the manifest and make READY state the changed one, as an owner of the store could."""
    table = json.loads((folder / "manifest.json").read_bytes())
    change(table)
    data = json.dumps(table).encode() if text is None else text
    write(folder / "manifest.json", data)
    ready = json.loads((folder / "READY.json").read_bytes())
    ready["manifest_digest"] = digest_bytes("sha256", data)
    write(folder / "READY.json", json.dumps(ready).encode())


def setting(table: str, row: int, column: int, value: object) -> Tamper:
    def change(manifest: dict[str, list[list[object]]]) -> None:
        manifest[table][row][column] = value

    return lambda folder: forge(folder, change)


def top(name: str, value: object) -> Tamper:
    return lambda folder: forge(folder, lambda manifest: manifest.update({name: value}))  # type: ignore[dict-item]


def resize(folder: Path, by: int) -> None:
    data = payload(folder).read_bytes()
    write(payload(folder), data[:by] if by < 0 else data + bytes(by))


def swap(folder: Path) -> None:
    one, two = sorted(folder.glob("*.safetensors"))[:2]
    first, second = one.read_bytes(), two.read_bytes()
    write(one, second.ljust(len(first), b"\0")[: len(first)])
    write(two, first.ljust(len(second), b"\0")[: len(second)])


def replace_by_symlink(path: Path) -> None:
    outside = path.parent.parent.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)


def replace_by(path: Path, make: Callable[[Path], None]) -> None:
    path.unlink()
    make(path)


def grow(path: Path, nbytes: int) -> None:
    path.chmod(0o600)
    os.truncate(path, nbytes)
    path.chmod(0o400)


def link_twice(path: Path) -> None:
    os.link(path, path.parent.parent.parent / "second name")


def rewrite_header(folder: Path) -> None:
    data = payload(folder).read_bytes()
    write(payload(folder), data.replace(b'"BF16"', b'"I16" ', 1).replace(b'"F32"', b'"I32"', 1))


TAMPERINGS: dict[str, tuple[str, Tamper]] = {
    "payload cut by a byte": ("truncated", lambda f: resize(f, -1)),
    "payload emptied": ("truncated", lambda f: write(payload(f), b"")),
    "payload longer": ("listing", lambda f: resize(f, 1)),
    "payloads swapped": ("header", swap),
    "payload gone": ("listing", lambda f: payload(f).unlink()),
    "payload is a symlink": ("symlink", lambda f: replace_by_symlink(payload(f))),
    "payload has a second name": ("hardlink", lambda f: link_twice(payload(f))),
    "payload is a directory": ("listing", lambda f: replace_by(payload(f), Path.mkdir)),
    "payload is a pipe": ("listing", lambda f: replace_by(payload(f), os.mkfifo)),
    "payload may be written": ("mode", lambda f: payload(f).chmod(0o600)),
    "payload may be read by others": ("mode", lambda f: payload(f).chmod(0o444)),
    "payload's header says another type": ("header", rewrite_header),
    "artifact may be entered": ("mode", lambda f: f.chmod(0o755)),
    "artifact is a symlink": ("symlink", replace_by_symlink),
    "artifact is a file": ("symlink", lambda f: (shutil.rmtree(f), f.write_bytes(b"x"))[0]),
    "extra file": ("listing", lambda f: write(f / "model.bin", b"x")),
    "extra folder": ("listing", lambda f: (f / "sub").mkdir()),
    "READY gone": ("listing", lambda f: (f / "READY.json").unlink()),
    "READY empty": ("ready", lambda f: write(f / "READY.json", b"")),
    "READY is no JSON": ("ready", lambda f: write(f / "READY.json", b"\xff{")),
    "READY too long": ("oversized", lambda f: grow(f / "READY.json", 1 << 20)),
    "READY is a symlink": ("symlink", lambda f: replace_by_symlink(f / "READY.json")),
    "manifest gone": ("listing", lambda f: (f / "manifest.json").unlink()),
    "manifest changed alone": ("ready", lambda f: write(f / "manifest.json", b"{}")),
    "manifest too long": ("oversized", lambda f: grow(f / "manifest.json", 300 << 20)),
    "manifest is no JSON": ("manifest", lambda f: forge(f, lambda m: None, b"[[[[")),
    "manifest nests deeply": ("manifest", lambda f: forge(f, lambda m: None, b'{"key":' + b"[" * 100_000)),
    "manifest of another schema": ("manifest", top("schema", "omni-hwr/manifest/9")),
    "manifest with an unknown field": ("manifest", top("comment", "x")),
    "manifest with an unknown digest": ("manifest", top("algorithm", "md5")),
    "manifest without files": ("manifest", top("files", [])),
    "file called otherwise": ("manifest", setting("files", 0, 0, "../../../etc/passwd")),
    "file of negative size": ("manifest", setting("files", 0, 1, -1)),
    "file size of another kind": ("manifest", setting("files", 0, 1, "4096")),
    "file's header longer than it": ("manifest", setting("files", 0, 2, 1 << 40)),
    "file of another digest": ("header", setting("files", 0, 3, "blake3:" + "0" * 64)),
    "tensor of another type": ("manifest", setting("blobs", 0, 1, "F64")),
    "tensor of an unknown type": ("manifest", setting("blobs", 0, 1, "F7")),
    "tensor of another shape": ("header", setting("blobs", 0, 2, [16, 32])),
    "tensor of negative shape": ("manifest", setting("blobs", 0, 2, [-32, -16])),
    "tensor in no file": ("manifest", setting("blobs", 0, 3, 7)),
    "tensor in a negative file": ("manifest", setting("blobs", 0, 3, -1)),
    "tensor elsewhere": ("manifest", setting("blobs", 0, 4, 0)),
    "tensor of another size": ("manifest", setting("blobs", 0, 5, 1 << 40)),
    "tensor of another digest": ("header", setting("blobs", 0, 6, "blake3:" + "0" * 64)),
    "view of an unknown kind": ("manifest", setting("views", 0, 1, "secret")),
    "view past its tensor": ("manifest", setting("views", 0, 3, [1 << 40, 16])),
    "view with huge steps": ("manifest", setting("views", 0, 4, [1 << 40, 1])),
    "view with a negative step": ("manifest", setting("views", 0, 4, [-16, 1])),
    "view with too few steps": ("manifest", setting("views", 0, 4, [1])),
    "view of no tensor": ("manifest", setting("views", 0, 5, 99)),
    "view of a negative tensor": ("manifest", setting("views", 0, 5, -1)),
    "view beside its items": ("manifest", setting("views", 0, 6, 2)),
    "view before its tensor": ("manifest", setting("views", 0, 6, -64)),
    "two views of one name": ("manifest", setting("views", 0, 0, "head.weight")),
    "denied by another process": ("denied", lambda f: (f / "READY.json").rename(f / "DENIED.json") and None),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(TAMPERINGS))
def test_tampering_is_refused_with_its_own_reason(
    name: str, store: WeightStore, key: WeightKey, weights: Weights, root: Path
) -> None:
    store.publish(key, weights)
    folder = root / "artifacts" / key.digest
    assert payload(folder).exists()
    reason, tamper = TAMPERINGS[name]
    tamper(folder)
    with pytest.raises(DeniedError) as caught:
        store.lease(key)
    assert caught.value.reason == reason, str(caught.value)
    assert caught.value.digest == key.digest
    with WeightStore(root) as another:
        assert another.lease(key) is None
    assert not os.path.lexists(folder)
    assert len(list((root / "quarantine").iterdir())) == 1
    with store.get_or_build(key, lambda: weights, verify="full") as lease:
        assert lease.source == "built"
        assert torch.equal(lease.tensors["block.0.weight"], weights["block.0.weight"])


@pytest.mark.skipif(os.geteuid() != 0, reason="waits for root, who alone can give files to another user")
@pytest.mark.parametrize("which", ["artifact", "payload", "manifest.json", "READY.json"])
def test_another_users_files_are_refused(
    which: str, store: WeightStore, key: WeightKey, weights: Weights, root: Path
) -> None:
    store.publish(key, weights)
    folder = root / "artifacts" / key.digest
    os.chown({"artifact": folder, "payload": payload(folder)}.get(which, folder / which), 12345, 12345)
    with pytest.raises(DeniedError) as caught:
        store.lease(key)
    assert caught.value.reason == "owner"


def test_an_artifact_under_another_keys_name_is_refused(
    store: WeightStore, make_key: Callable[..., WeightKey], weights: Weights, root: Path
) -> None:
    store.publish(make_key("a"), weights)
    (root / "artifacts" / make_key("a").digest).rename(root / "artifacts" / make_key("b").digest)
    with pytest.raises(DeniedError) as caught:
        store.lease(make_key("b"))
    assert caught.value.reason == "ready"


def test_a_forged_key_is_refused(
    store: WeightStore, make_key: Callable[..., WeightKey], weights: Weights, root: Path
) -> None:
    store.publish(make_key("a"), weights)
    top("key", make_key("b").content)(root / "artifacts" / make_key("a").digest)
    with pytest.raises(DeniedError) as caught:
        store.lease(make_key("a"))
    assert caught.value.reason == "key"


def test_every_single_flipped_payload_byte_is_found(
    store: WeightStore, make_key: Callable[..., WeightKey], root: Path
) -> None:
    weights = {"a": torch.arange(24, dtype=torch.uint8), "b": torch.arange(3, dtype=torch.int16)}
    for at in range(1, 31):
        key = make_key(str(at))
        store.publish(key, weights)
        file = next((root / "artifacts" / key.digest).glob("*.safetensors"))
        data = bytearray(file.read_bytes())
        data[-at] ^= 0x10
        write(file, bytes(data))
        with pytest.raises(DeniedError, match="payload"):
            store.lease(key, verify="full")


def test_sha256_on_request(root: Path, key: WeightKey, weights: Weights) -> None:
    with WeightStore(root, config=StoreConfig(algorithm="sha256")) as store:
        manifest = store.publish(key, weights)
        assert {digest.split(":")[0] for digest in (blob.digest for blob in manifest.blobs)} == {"sha256"}
    with WeightStore(root) as other:
        other.verify(key)
        other.publish(key, weights)


def test_a_removal_under_way_is_waited_for_within_bounds(root: Path, key: WeightKey, weights: Weights) -> None:
    with WeightStore(root, config=StoreConfig(lock_wait_s=0.05)) as store:
        store.publish(key, weights)
        fd = os.open(root / "artifacts" / key.digest, os.O_RDONLY)
        try:
            assert try_lock(fd, shared=False)
            with pytest.raises(BusyError, match=f"process {os.getpid()}"):
                store.lease(key)
        finally:
            os.close(fd)
        store.lease(key).close()


def test_leases_that_are_open_outlast_a_denial(
    store: WeightStore, key: WeightKey, weights: Weights, root: Path
) -> None:
    store.publish(key, weights)
    with store.lease(key) as lease:
        write(root / "artifacts" / key.digest / "extra", b"")
        with pytest.raises(DeniedError):
            store.lease(key)
        assert torch.equal(lease.tensors["block.0.weight"], weights["block.0.weight"])
