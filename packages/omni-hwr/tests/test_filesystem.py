"""Only local file systems are accepted, by what the kernel says of the mount."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from omni_hwr import StoreConfig, WeightKey, WeightStore
from omni_hwr.errors import FileSystemError
from omni_hwr.filesystem import LOCAL, check_file_system, file_system_of

MOUNTS = r"""
21 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 21 0:30 / /data rw - nfs4 server:/export rw
31 21 0:31 / /data/scratch rw shared:7 master:2 - xfs /dev/nvme0n1 rw
32 21 0:32 / /lustre rw - lustre mgs@tcp:/fs rw
33 21 0:33 / /shared rw - 9p host rw
34 21 0:34 / /vm rw - virtiofs tag rw
35 21 0:35 / /fuse rw - fuse.sshfs host: rw
36 21 0:36 / /with\040blank rw - nfs server:/x rw
37 21 0:37 / /over rw - nfs server:/x rw
38 37 0:38 / /over rw - tmpfs tmpfs rw
a line that is none
"""


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/", "ext4"), ("/var/cache", "ext4"), ("/data", "nfs4"), ("/data/x", "nfs4"), ("/database", "ext4"),
        ("/data/scratch/x", "xfs"), ("/lustre/a", "lustre"), ("/shared", "9p"), ("/vm/a/b", "virtiofs"),
        ("/fuse", "fuse.sshfs"), ("/with blank/x", "nfs"), ("/over/x", "tmpfs"),
    ],
)  # fmt: skip
def test_the_innermost_last_mount_counts(path: str, found: str) -> None:
    assert file_system_of(path, MOUNTS) == found
    assert (found in LOCAL) == (found in ("ext4", "xfs", "tmpfs"))


def test_without_a_mount_it_is_unknown() -> None:
    assert file_system_of("/x", "") == "unknown"
    assert "unknown" not in LOCAL


def test_a_real_file_system_that_is_not_local_is_refused_by_name() -> None:
    with pytest.raises(FileSystemError, match=r"is on proc.*allow_file_system='proc'") as caught:
        check_file_system(Path("/proc/self/store"), None)
    assert caught.value.file_system == "proc"
    assert check_file_system(Path("/proc/self/store"), "proc") == "proc"
    with pytest.raises(FileSystemError):
        check_file_system(Path("/proc/self/store"), "nfs")


def test_the_store_is_refused_and_the_override_opens_it(tmp_path: Path, key: WeightKey) -> None:
    """A ramfs, which is not in the list, in a mount namespace of its own."""
    (tmp_path / "mount").mkdir()
    code = f"""
import torch
from pathlib import Path
from omni_hwr import StoreConfig, WeightKey, WeightStore
from omni_hwr.errors import FileSystemError
root = Path({str(tmp_path)!r}) / "mount" / "store"
key = WeightKey.parse({key.content!r})
try:
    WeightStore(root).publish(key, {{"x": torch.ones(2)}})
except FileSystemError as error:
    print(error.file_system, root.exists())
with WeightStore(root, config=StoreConfig(allow_file_system="ramfs", reserve_bytes=0)) as store:
    store.entries()
    print("opened")
"""
    mount = f'mount -t ramfs ramfs "{tmp_path}/mount" && exec "$@"'
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("waits for the right to make a mount namespace (unshare -m)")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", mount, "sh", sys.executable, "-c", code], capture_output=True, text=True
    )
    assert done.stdout.split() == ["ramfs", "False", "opened"], done.stderr


def test_this_machines_temporary_folder_is_local(tmp_path: Path) -> None:
    with WeightStore(tmp_path / "store", config=StoreConfig()) as store:
        assert store.entries() == []
