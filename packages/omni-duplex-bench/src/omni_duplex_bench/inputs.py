"""Turns what the user names into cases: files, folders, manifests, archives, datasets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from omni_duplex_bench.cases import Case, safe_name
from omni_duplex_bench.dataset import SUBSETS, is_omniinteract, load_omniinteract, select
from omni_duplex_bench.errors import DatasetError, UsageError
from omni_duplex_bench.extract import dataset_cache, extract
from omni_duplex_bench.paths import confined

AUDIO = (".wav", ".wave", ".mp3", ".flac", ".ogg", ".opus", ".m4a")
VIDEO = (".mp4", ".mkv", ".webm", ".mov", ".avi", ".ts")


class ManifestLine(msgspec.Struct):
    """A line of a JSON Lines manifest; paths are relative to the manifest and stay below its folder."""

    path: str
    id: str | None = None
    annotation: str | None = None
    scene_type: str = ""


def find_cases(
    name: str,
    *,
    subsets: Sequence[str] = SUBSETS,
    num_prompts: int = 3,
    seed: int = 0,
    shuffle: bool = True,
    cache: Path | None = None,
) -> tuple[list[Case], list[str]]:
    """The cases of one ``--input`` and warnings.

    Raises:
        UsageError: If nothing of that name exists.
        DatasetError: If a dataset or manifest is not what it should be.
    """
    path = Path(name)
    if not path.exists():
        if name.count("/") == 1 and not name.startswith((".", "/", "~")):
            from omni_duplex_bench.hub import download

            return find_cases(
                str(download(name)), subsets=subsets, num_prompts=num_prompts, seed=seed, shuffle=shuffle, cache=cache
            )
        raise UsageError(f"--input: {name} does not exist (a Hub dataset is written owner/name)")
    if path.name.endswith((".tar", ".tar.gz", ".tgz")):
        path = extract(path, cache or dataset_cache())
    if path.is_dir():
        cases, official = _folder(path, subsets)
    elif path.suffix.lower() == ".jsonl":
        cases, official = _manifest(path), True
    else:
        return [Case(safe_name(path.stem), path)], []
    if not official:
        return cases, []
    return select(cases, num_prompts, seed=seed, shuffle=shuffle)


def _folder(path: Path, subsets: Sequence[str]) -> tuple[list[Case], bool]:
    root = is_omniinteract(path)
    if root is not None:
        return load_omniinteract(root, subsets), True
    files = sorted(f for f in path.rglob("*") if f.is_file() and f.suffix.lower() in AUDIO + VIDEO)
    if not files:
        raise DatasetError(f"{path}: neither an OmniInteract dataset nor a folder with recordings or videos")
    taken: set[str] = set()
    cases = []
    for file in files:
        case_id = unique(safe_name(str(file.relative_to(path).with_suffix("")).replace(os.sep, "__")), taken)
        cases.append(Case(case_id, file))
    return cases, False


def _manifest(path: Path) -> list[Case]:
    cases, taken = [], set[str]()
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        if not line.strip():
            continue
        try:
            entry = msgspec.json.decode(line, type=ManifestLine)
        except msgspec.MsgspecError as error:
            raise DatasetError(f"{path}:{number}: {error}") from error
        file = confined(path.parent, entry.path)
        annotation = confined(path.parent, entry.annotation) if entry.annotation else None
        case_id = unique(safe_name(entry.id or file.stem), taken)
        cases.append(Case(case_id, file, annotation=annotation, scene_type=entry.scene_type))
    if not cases:
        raise DatasetError(f"{path}: the manifest names no input")
    return cases


def unique(name: str, taken: set[str]) -> str:
    """``name``, or ``name_2`` and so on where it is taken; enters what it returns."""
    found, count = name, 1
    while found in taken:
        count += 1
        found = f"{name}_{count}"
    taken.add(found)
    return found


def all_cases(names: Sequence[str], *, repeat: int = 1, **selection: Any) -> tuple[list[Case], list[str]]:
    """The cases of every input, each ``repeat`` times, with ids that are unique in the run."""
    cases: list[Case] = []
    warnings: list[str] = []
    for name in names:
        found, said = find_cases(name, **selection)
        cases += found
        warnings += said
    taken: set[str] = set()
    again = [case for _ in range(repeat) for case in cases]
    return [
        Case(unique(c.case_id, taken), c.path, c.subset, c.annotation, c.scene_type, c.official) for c in again
    ], warnings
