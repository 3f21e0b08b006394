"""Fingerprints: a second start reads no source byte, and a file that changes is never trusted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from omni_hwr import Progress, StoreConfig, WeightStore
from omni_hwr.errors import SourceChangedError, StorageError


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    folder = tmp_path / "source"
    folder.mkdir()
    found = [folder / f"part{index}.safetensors" for index in range(3)]
    for index, path in enumerate(found):
        path.write_bytes(bytes([index]) * 100_000)
    return found


class Hashed:
    """Counts the bytes that a fingerprint read, by its own reports."""

    def __init__(self) -> None:
        self.nbytes = 0

    def __call__(self, report: Progress) -> None:
        assert report.stage == "hashing"
        assert report.done_bytes <= report.total_bytes
        self.nbytes = report.done_bytes


def test_a_second_start_reads_nothing(root: Path, files: list[Path]) -> None:
    first, second = Hashed(), Hashed()
    with WeightStore(root) as store:
        digest = store.fingerprint(files, progress=first)
    with WeightStore(root) as store:
        assert store.fingerprint(reversed(files), progress=second) == digest
    assert (first.nbytes, second.nbytes) == (300_000, 0)


def test_a_second_process_opens_no_source_file(root: Path, files: list[Path], tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("waits for strace, which lists the files that a process opens")
    with WeightStore(root) as store:
        digest = store.fingerprint(files)
    code = "import sys; from omni_hwr import WeightStore; print(WeightStore(sys.argv[1]).fingerprint(sys.argv[2:]))"
    trace = tmp_path / "trace"
    done = subprocess.run(
        ["strace", "-f", "-qq", "-e", "trace=openat,open", "-o", str(trace), sys.executable, "-c", code, str(root)]
        + [str(path) for path in files],
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode != 0 and "ptrace" in done.stderr:
        pytest.skip("waits for the right to trace a child (ptrace)")
    assert done.stdout.strip() == digest
    assert str(root) in trace.read_text()
    assert "source/part" not in trace.read_text()


@pytest.mark.parametrize("change", ["content", "same size and mtime", "replaced", "touched", "renamed"])
def test_any_change_is_noticed(change: str, store: WeightStore, files: list[Path]) -> None:
    before = store.fingerprint(files)
    status = files[0].stat()
    again = Hashed()
    if change == "content":
        files[0].write_bytes(b"other")
    elif change == "same size and mtime":
        files[0].write_bytes(b"\7" * 100_000)
        os.utime(files[0], ns=(status.st_atime_ns, status.st_mtime_ns))
    elif change == "replaced":
        other = files[0].with_name("other")
        other.write_bytes(b"\7" * 100_000)
        os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
        other.rename(files[0])
    elif change == "touched":
        files[0].touch()
    else:
        files[0] = files[0].rename(files[0].with_name("part9.safetensors"))
    after = store.fingerprint(files, progress=again)
    assert again.nbytes > 0
    assert (after == before) == (change == "touched")


def test_a_file_that_changes_while_hashed_is_named(store: WeightStore, files: list[Path]) -> None:
    def meddle(report: Progress) -> None:
        files[1].write_bytes(b"\1" * 100_000)

    with pytest.raises(SourceChangedError, match="part1") as caught:
        store.fingerprint([files[1]], progress=meddle)
    assert caught.value.retry
    for grow in (b"x", b""):
        with pytest.raises(SourceChangedError):
            store.fingerprint([files[2]], progress=lambda report, data=grow: files[2].write_bytes(data))  # type: ignore[misc]
        files[2].write_bytes(bytes(50))
    store.fingerprint(files)


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\xfe", b'{"checksum": 1}', b"x" * 100_000, None])
def test_a_damaged_record_is_rebuilt(damage: bytes | None, store: WeightStore, files: list[Path], root: Path) -> None:
    digest = store.fingerprint(files)
    for record in (root / "source-digests").iterdir():
        data = damage if damage is not None else record.read_bytes().replace(b'"digest"', b'"Digest"')
        record.unlink()
        record.write_bytes(data)
    hashed, again = Hashed(), Hashed()
    assert store.fingerprint(files, progress=hashed) == digest
    assert hashed.nbytes == 300_000
    assert store.fingerprint(files, progress=again) == digest
    assert again.nbytes == 0


def test_a_record_with_another_digest_fails_its_checksum(store: WeightStore, files: list[Path], root: Path) -> None:
    digest = store.fingerprint(files)
    for record in (root / "source-digests").iterdir():
        data = record.read_text()
        at = data.index("blake3:") + 7
        record.unlink()
        record.write_text(data[:at] + ("0" if data[at] != "0" else "1") + data[at + 1 :])
    assert store.fingerprint(files) == digest


def test_a_cache_that_cannot_be_locked_costs_a_direct_hash(root: Path, files: list[Path]) -> None:
    with WeightStore(root, config=StoreConfig(build_wait_s=0.01)) as store:
        digest = store.fingerprint(files[:1])
        import fcntl

        fd = os.open(root / "source-digests", os.O_RDONLY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            hashed = Hashed()
            store.fingerprint(files, progress=hashed)
            assert hashed.nbytes == 200_000
            assert store.fingerprint(files[:1]) == digest
        finally:
            os.close(fd)


def test_a_cache_that_cannot_be_created_costs_a_direct_hash(tmp_path: Path, files: list[Path]) -> None:
    (tmp_path / "file").write_bytes(b"")
    with WeightStore(tmp_path / "file" / "store") as broken, WeightStore(tmp_path / "sound") as sound:
        assert broken.fingerprint(files) == sound.fingerprint(files)


def test_a_record_that_cannot_be_written_costs_a_direct_hash(
    store: WeightStore, files: list[Path], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", full)
        digest = store.fingerprint(files)
    assert list((root / "source-digests").iterdir()) == []
    assert store.fingerprint(files) == digest


def test_a_hub_blob_is_trusted_by_its_name(store: WeightStore, tmp_path: Path) -> None:
    snapshots, blobs = tmp_path / "models--x" / "snapshots" / "rev", tmp_path / "models--x" / "blobs"
    snapshots.mkdir(parents=True)
    blobs.mkdir()
    found: list[str] = []
    for name in ("a" * 64, "b" * 64, "c" * 40, "notadigest"):
        (blobs / name).write_bytes(b"never read where the name is a digest")
        (snapshots / "model.safetensors").unlink(missing_ok=True)
        (snapshots / "model.safetensors").symlink_to(Path("../../blobs") / name)
        hashed = Hashed()
        found.append(store.fingerprint([snapshots / "model.safetensors"], progress=hashed))
        assert (hashed.nbytes > 0) == (name == "notadigest")
    assert len(set(found)) == 4


def test_a_missing_source_is_an_error_that_names_it(store: WeightStore, tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        store.fingerprint([tmp_path / "nowhere"])


def test_processes_that_start_together_hash_once(root: Path, files: list[Path]) -> None:
    code = (
        "import sys; from omni_hwr import WeightStore\n"
        "total = [0]\n"
        "def note(r): total[0] = r.done_bytes\n"
        "print(WeightStore(sys.argv[1]).fingerprint(sys.argv[2:], progress=note), total[0])"
    )
    command = [sys.executable, "-c", code, str(root), *map(str, files)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    lines = [process.communicate()[0].split() for process in running]
    assert len({line[0] for line in lines}) == 1
    assert sorted(line[1] for line in lines) == ["0", "0", "300000"]
