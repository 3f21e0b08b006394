"""Names that look like another name, and names that platforms put into an environment by themselves.

Distance is optimal string alignment: one insertion, deletion, substitution or swap of neighbours counts one
(Damerau 1964). Kubernetes publishes every service of a namespace as environment variables
(kubernetes.io/docs/concepts/services-networking/service, "Environment variables"): a service called ``vllm`` makes
``VLLM_PORT=tcp://10.0.0.1:80`` and its kin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

_SERVICE = re.compile(
    r".+_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)"
)
_LINK_VALUE = re.compile(r"(?:tcp|udp|sctp)://[\w.:\[\]-]+:\d+")
_BUILD = re.compile(
    r".+_(?:VERSION|BUILD_(?:COMMIT|DATE|ID|NUMBER|PIPELINE|URL|REF)|IMAGE_(?:TAG|NAME|DIGEST)|GIT_(?:SHA|REF|COMMIT)|COMMIT_SHA)"
)


class Origin(StrEnum):
    """Where an undeclared variable comes from, as far as its name and value tell."""

    TYPO = "typo"
    UNKNOWN = "unknown"
    SERVICE_LINK = "kubernetes service link"
    IMAGE_BUILD = "image build"


def distance(left: str, right: str, limit: int) -> int:
    """Edits between two texts, or ``limit + 1`` when there are more."""
    if abs(len(left) - len(right)) > limit:
        return limit + 1
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        current = [i, *[0] * len(right)]
        for j, b in enumerate(right, 1):
            best = min(row[j] + 1, current[j - 1] + 1, row[j - 1] + (a != b))
            if i > 1 and j > 1 and a == right[j - 2] and left[i - 2] == b:
                best = min(best, before[j - 2] + 1)
            current[j] = best
        if min(current) > limit:
            return limit + 1
        before, row = row, current
    return row[-1]


def _words(name: str) -> tuple[str, ...]:
    return tuple(sorted(part for part in re.split(r"[_\-.]+", name.upper()) if part))


def _digits(name: str) -> str:
    return "".join(character if character.isdigit() else " " for character in name).strip()


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """The known name that this one is most likely meant to be, or None.

    Close means: equal but for case, separators or order of words; a word more or less spelled as plural; or at most one
    edit per six characters, three at most. Names that differ in their numbers are different names, not typos.
    """
    upper = name.upper()
    limit = min(3, max(1, len(name) // 6))
    best: tuple[int, str] | None = None
    for candidate in known:
        if candidate == name or "*" in candidate:
            continue
        other = candidate.upper()
        if (
            other == upper
            or _words(candidate) == _words(name)
            or other.replace("_", "") == upper.replace("_", "").replace("-", "")
        ):
            score = 0
        elif _digits(other).split() != _digits(upper).split() and len(_digits(other).split()) == len(
            _digits(upper).split()
        ):
            continue
        else:
            score = distance(upper, other, limit)
            if score > limit or (len(name) <= 5 and score > 1) or len(name) <= 3:
                continue
            if score >= 2 and _whole_words_differ(upper, other):
                continue
        if best is None or (score, candidate) < best:
            best = (score, candidate)
    return best[1] if best is not None else None


def _whole_words_differ(left: str, right: str) -> bool:
    """Whether the names are told apart by a short word that is simply another one (``_DIR`` against ``_TTL``)."""
    a, b = left.split("_"), right.split("_")
    if len(a) != len(b):
        return False
    differing = [(x, y) for x, y in zip(a, b) if x != y]
    return len(differing) == 1 and distance(*differing[0], limit=8) * 2 >= max(map(len, differing[0]))


def origin(name: str, value: str | None, known: Iterable[str]) -> tuple[Origin, str | None]:
    """Where an undeclared variable comes from, and the name it is likely meant to be.

    Args:
        name: The variable.
        value: Its value if known: a service link shows in it.
        known: The owned names.
    """
    if _SERVICE.fullmatch(name) or (name.endswith("_PORT") and value is not None and _LINK_VALUE.fullmatch(value)):
        return Origin.SERVICE_LINK, None
    meant = did_you_mean(name, known)
    if _BUILD.fullmatch(name) and (meant is None or distance(name, meant, 2) > 1):
        return Origin.IMAGE_BUILD, None
    return (Origin.TYPO, meant) if meant is not None else (Origin.UNKNOWN, None)


def is_service_link(name: str, value: str | None) -> bool:
    """Whether Kubernetes put this variable there for a service."""
    return origin(name, value, ())[0] is Origin.SERVICE_LINK
