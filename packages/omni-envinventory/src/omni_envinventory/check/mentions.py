"""Variables that deployment files set: Kubernetes and stage YAML, compose files, Dockerfiles."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from . import yaml_lines

ENV_KEYS = frozenset({"env", "environment", "env_vars", "envVars", "extraEnv", "extraEnvVars"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Mention:
    """One variable that a file sets.

    Attributes:
        name: The variable.
        value: Its value where it is plain; only its shape is looked at.
        path: The file.
        line: Where.
        where: What sets it, in words.
        stage: The pipeline stage whose ``env:`` it is, if it is one.
    """

    name: str
    value: str | None
    path: str
    line: int
    where: str
    stage: str | None = None


def find_mentions(text: str, path: str) -> list[Mention]:
    """The variables that a file sets; what kind of file it is follows from its name."""
    name = PurePath(path).name.lower()
    if name.endswith((".yaml", ".yml")):
        return list(yaml_mentions(text, path))
    if "dockerfile" in name or "containerfile" in name:
        return list(dockerfile_mentions(text, path))
    return []


def dockerfile_mentions(text: str, path: str) -> Iterator[Mention]:
    """``ENV`` instructions, continued lines joined; ``ARG`` is gone when the container runs and does not count."""
    joined, start = "", 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        stripped = line.strip()
        if stripped.startswith("#"):
            continue
        start = start or number
        joined += f" {stripped}"
        if stripped.endswith("\\"):
            joined = joined[:-1]
            continue
        instruction, _, rest = joined.strip().partition(" ")
        if instruction.upper() == "ENV":
            yield from _env_instruction(rest.strip(), path, start)
        joined, start = "", 0


def _env_instruction(rest: str, path: str, line: int) -> Iterator[Mention]:
    try:
        words = shlex.split(rest)
    except ValueError:
        words = rest.split()
    if words and "=" not in words[0]:
        words = [f"{words[0]}={' '.join(words[1:])}"]
    for word in words:
        name, separator, value = word.partition("=")
        if separator and _NAME.fullmatch(name):
            yield Mention(name, value, path, line, "ENV")


def yaml_mentions(text: str, path: str) -> Iterator[Mention]:
    """Keys under ``env:``, ``environment:`` and their kin, in each of the forms that tools accept."""
    for node in yaml_lines.parse(text).walk():
        if node.key not in ENV_KEYS:
            continue
        stage = _stage(node)
        where = f"{node.key}:" if stage is None else f"stage {stage}"
        for key, value in yaml_lines.flow_entries(node.value):
            name, given = (key, value) if key else _split(value)
            if _NAME.fullmatch(name):
                yield Mention(name, given, path, node.line, where, stage)
        for child in node.children:
            yield from _entry(child, path, where, stage)


def _split(text: str) -> tuple[str, str | None]:
    name, separator, value = text.partition("=")
    return name.strip(), value if separator else None


def _entry(child: yaml_lines.Node, path: str, where: str, stage: str | None) -> Iterator[Mention]:
    name: str
    value: str | None
    if child.key is not None:
        name, value = child.key, yaml_lines.unquote(child.value)
    elif child.child("name") is not None:
        name, value = child.child("name") or "", child.child("value")
    elif child.value.startswith("{"):
        entries = dict(yaml_lines.flow_entries(child.value))
        name, value = entries.get("name", ""), entries.get("value")
    else:
        name, value = _split(yaml_lines.unquote(child.value))
    if _NAME.fullmatch(name):
        yield Mention(name, value, path, child.line, where, stage)


def _stage(node: yaml_lines.Node) -> str | None:
    """The stage that an ``env:`` belongs to: an item of a ``stages:`` list, or a key of a ``stages:`` mapping."""
    walk: yaml_lines.Node | None = node.parent
    while walk is not None and walk.parent is not None:
        if walk.parent.key == "stages":
            if walk.key is not None:
                return walk.key
            return (
                walk.child("name")
                or walk.child("id")
                or walk.child("stage_id")
                or str(walk.parent.children.index(walk))
            )
        walk = walk.parent
    return None
