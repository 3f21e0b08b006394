"""Waivers against the dynamic accesses they are for."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from omni_envinventory.model import Waiver
from omni_envinventory.scan.result import Access


def covers_place(waiver: Waiver, access: Access) -> bool:
    """Whether a waiver is for this place: same file and same function (both may use ``*``)."""
    return fnmatchcase(access.place.path, waiver.path) and fnmatchcase(
        access.place.scope, waiver.scope.replace("[", "[[]")
    )


def match_waivers(waivers: Sequence[Waiver], dynamic: Sequence[Access]) -> tuple[list[Access], list[Waiver]]:
    """Dynamic accesses that no waiver covers, and waivers that cover none."""
    used: set[int] = set()
    remaining: list[Access] = []
    for access in dynamic:
        covering = [number for number, waiver in enumerate(waivers) if covers_place(waiver, access)]
        used.update(covering)
        if not covering:
            remaining.append(access)
    return remaining, [waiver for number, waiver in enumerate(waivers) if number not in used]
