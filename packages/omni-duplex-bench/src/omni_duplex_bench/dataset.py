"""The layout of OmniInteract (lucky-lance/OmniInteract): three subsets of videos with annotations.

``1q1a`` and ``1q1a_math`` pair them in ``video_json_map.json``; in ``1qna`` ``annotations/`` mirrors ``videos_bench/``.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from omni_duplex_bench.cases import Case, safe_name
from omni_duplex_bench.errors import DatasetError
from omni_duplex_bench.options import SUBSETS
from omni_duplex_bench.paths import confined

__all__ = ["SUBSETS", "is_omniinteract", "load_omniinteract", "select"]


class _Entry(msgspec.Struct):
    video: str
    annotation: str
    scene_type: str = "multi_turn"


class _Map(msgspec.Struct):
    entries: list[_Entry]


def is_omniinteract(path: Path) -> Path | None:
    """The folder that holds the subsets: ``path`` itself or its ``data``; None when neither does."""
    for root in (path, path / "data"):
        if any((root / subset).is_dir() for subset in SUBSETS):
            return root
    return None


def load_omniinteract(root: Path, subsets: Sequence[str] = SUBSETS) -> list[Case]:
    """Every case of the subsets, in the order of the mapping or of file names.

    Raises:
        DatasetError: If a subset is missing, its mapping broken, a path leaves it, or a file is absent.
    """
    cases: list[Case] = []
    for subset in subsets:
        folder = root / subset
        if not folder.is_dir():
            raise DatasetError(f"{root}: no subset {subset}")
        found = _mirrored(folder) if subset == "1qna" else _mapped(folder)
        if not found:
            raise DatasetError(f"{folder}: the subset names no video")
        cases += found
    return cases


def _mapped(folder: Path) -> list[Case]:
    path = folder / "video_json_map.json"
    try:
        entries = msgspec.json.decode(path.read_bytes(), type=_Map).entries
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise DatasetError(f"{path}: {error}") from error
    cases = []
    for entry in entries:
        video, annotation = confined(folder, entry.video), confined(folder, entry.annotation)
        cases.append(_case(folder, video, annotation, entry.video, entry.scene_type))
    return cases


def _mirrored(folder: Path) -> list[Case]:
    videos = folder / "videos_bench"
    cases = []
    for video in sorted(videos.rglob("*.mp4")):
        relative = video.relative_to(videos)
        confined(videos, relative.as_posix())
        annotation = confined(folder / "annotations", relative.with_suffix(".json").as_posix())
        cases.append(_case(folder, video, annotation, relative.as_posix(), "1QnA"))
    return cases


def _case(folder: Path, video: Path, annotation: Path, relative: str, scene_type: str) -> Case:
    for path in (video, annotation):
        if not path.is_file():
            raise DatasetError(f"{path}: the file is missing")
    name = safe_name(relative.rsplit(".", 1)[0].replace("/", "__"))
    return Case(f"{folder.name}/{name}", video, folder.name, annotation.resolve(), scene_type, official=True)


def select(cases: Sequence[Case], count: int, *, seed: int, shuffle: bool) -> tuple[list[Case], list[str]]:
    """``count`` cases (0: all), drawn in a seeded order or taken from the front; asking for more is a warning."""
    order = list(cases)
    if shuffle:
        random.Random(seed).shuffle(order)
    warnings = []
    if count > len(order):
        warnings.append(f"{count} cases were asked for, the selection holds {len(order)}")
    return (order[:count] if count else order), warnings
