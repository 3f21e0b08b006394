"""An artifact out of the store: safetensors files in which every tensor has its own bytes under its own name."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from omni_hwr import fsio
from omni_hwr.config import Progress, ProgressCallback
from omni_hwr.errors import MissingError, StorageError, WeightStoreError
from omni_hwr.layout import plan_layout
from omni_hwr.payload import PayloadWriter
from omni_hwr.store import WeightStore
from omni_hwr.tensors import raw_bytes, spec_of


def export(store: WeightStore, digest: str, target: Path, progress: ProgressCallback) -> list[Path]:
    """Write the artifact ``digest`` to the new folder ``target``; the files written.

    Tied, shared and strided tensors are written out one by one, since the format has no sharing; non-persistent
    buffers are left out, as ``state_dict()`` would. With several files an index in the transformers form is added.

    Raises:
        MissingError: There is no such artifact.
        DeniedError, SpaceError, StorageError: Reading or writing failed; ``target`` is removed.
    """
    manifest = store.manifest(digest)
    lease = store.lease(manifest.key)
    if lease is None:
        raise MissingError(digest)
    with lease:
        tensors = {name: tensor for name, tensor in lease.tensors.items() if lease.kinds[name] != "transient"}
        specs = {name: spec_of(name, tensor) for name, tensor in tensors.items()}
        plan = plan_layout(specs, store.config.shard_bytes)
        with fsio.step("mkdir", str(target)):
            target.mkdir(parents=True)
        done = 0

        def on_written(nbytes: int, name: str) -> None:
            nonlocal done
            done += nbytes
            progress(Progress("writing", done, plan.nbytes, name))

        def on_synced(name: str) -> None:
            progress(Progress("synced", done, plan.nbytes, name))

        try:
            with fsio.step("open", str(target)):
                fd = fsio.open_dir(str(target))
            try:
                with PayloadWriter(
                    fd, plan, store.config.algorithm, store.config.threads, on_written, on_synced
                ) as writer:
                    for name, tensor in tensors.items():
                        writer.write(name, raw_bytes(tensor), 0)
                    writer.finish()
                names = [item.name for item in plan.files]
                if len(names) > 1:
                    index = {
                        "metadata": {"total_size": sum(spec.nbytes for spec in specs.values())},
                        "weight_map": {item.name: names[item.file] for item in plan.placements},
                    }
                    names.append("model.safetensors.index.json")
                    fsio.create_file(names[-1], json.dumps(index, indent=2).encode("ascii"), fd)
                else:
                    os.rename(names[0], "model.safetensors", src_dir_fd=fd, dst_dir_fd=fd)
                    names = ["model.safetensors"]
                for name in names:
                    os.chmod(name, 0o644, dir_fd=fd)
                fsio.sync(fd, str(target))
            finally:
                os.close(fd)
        except BaseException as fault:
            shutil.rmtree(target, ignore_errors=True)
            if isinstance(fault, OSError) and not isinstance(fault, WeightStoreError):
                raise StorageError("export", str(target), fault.errno) from fault
            raise
        return [target / name for name in names]
