"""What holds between the parts of a deploy file: names, edges, the graph, and which variables a stage may carry."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter
from importlib import resources

from omni_envinventory import check_stage_env, parse_inventory
from omni_serve.deploy.model import Edge, Stage
from omni_serve.deploy.reader import Mistakes
from omni_serve.deploy.source import Tree

FLOWS = {("listen", "reply"), ("reply", "speak")}
"""Kinds between which something flows."""

VOICE = ("listen", "reply", "speak")


def check(stages: Sequence[tuple[Stage, Tree]], edges: Sequence[tuple[Edge, Tree]], mistakes: Mistakes) -> None:
    """Note what is wrong between parts that are each right by themselves."""
    _names(stages, mistakes)
    _kinds(stages, mistakes)
    _edges(stages, edges, mistakes)
    _env(stages, mistakes)


def _names(stages: Sequence[tuple[Stage, Tree]], mistakes: Mistakes) -> None:
    first: dict[str, Tree] = {}
    for stage, tree in stages:
        if stage.name in first:
            mistakes.at(tree, f"stage {stage.name!r} stands here twice, first in line {first[stage.name].line}")
        first.setdefault(stage.name, tree)


def _kinds(stages: Sequence[tuple[Stage, Tree]], mistakes: Mistakes) -> None:
    """A voice needs its three parts once each; its mind answers text as well, so a text stage beside it is too many."""
    kinds = [stage.kind for stage, _ in stages]
    seen: set[str] = set()
    for stage, tree in stages:
        if stage.kind in seen:
            mistakes.at(tree, f"a second {stage.kind} stage; for more of the same raise its replicas")
        seen.add(stage.kind)
    voice = [kind for kind in VOICE if kind in kinds]
    if voice and len(voice) < len(VOICE):
        lacking = ", ".join(kind for kind in VOICE if kind not in kinds)
        mistakes.at(stages[0][1], f"a voice needs listen, reply and speak; {lacking} is missing")
    if voice and "text" in kinds:
        tree = next(tree for stage, tree in stages if stage.kind == "text")
        mistakes.at(tree, "the reply stage answers text as well; leave the text stage out")
    for stage, tree in stages:
        if stage.kind == "diffusion" and stage.model is None:
            mistakes.at(tree, f"stage {stage.name!r} needs model, a diffusers pipeline folder")
        if stage.offload is not None and stage.offload.transfer == "allgather" and stage.replicas < 2:
            mistakes.at(tree, f"stage {stage.name!r}: allgather needs at least 2 replicas to share the weights")


def _edges(stages: Sequence[tuple[Stage, Tree]], edges: Sequence[tuple[Edge, Tree]], mistakes: Mistakes) -> None:
    kinds = {stage.name: stage.kind for stage, _ in stages}
    seen: set[tuple[str, str]] = set()
    graph: dict[str, set[str]] = {name: set() for name in kinds}
    for edge, tree in edges:
        unknown = [end for end in (edge.source, edge.target) if end not in kinds]
        for end in unknown:
            near = difflib.get_close_matches(end, kinds, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(kinds)}"
            mistakes.at(tree, f"an edge names {end!r}, which is no stage{hint}")
        if unknown:
            continue
        if (edge.source, edge.target) in seen:
            mistakes.at(tree, f"the edge {edge.source} -> {edge.target} stands here twice")
        seen.add((edge.source, edge.target))
        graph[edge.target].add(edge.source)
        if (kinds[edge.source], kinds[edge.target]) not in FLOWS:
            flows = ", ".join(f"{a} -> {b}" for a, b in sorted(FLOWS))
            mistakes.at(tree, f"nothing flows from {kinds[edge.source]} to {kinds[edge.target]}; edges go {flows}")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        mistakes.at(edges[0][1], f"the edges form a circle: {' -> '.join(reversed(error.args[1]))}")
    needed = [(a, b) for a, b in FLOWS if edges and {a, b} <= set(kinds.values())]
    for a, b in sorted(needed):
        if not any((kinds.get(x), kinds.get(y)) == (a, b) for x, y in seen):
            mistakes.at(edges[0][1], f"no edge leads from {a} to {b}; add it, or leave edges out whole")


def _env(stages: Sequence[tuple[Stage, Tree]], mistakes: Mistakes) -> None:
    """omni-envinventory says which keys a stage may carry; values never leave the file."""
    text = resources.files("omni_serve").joinpath("envinventory.toml").read_text(encoding="utf-8")
    inventory = parse_inventory(text, "omni_serve/envinventory.toml")
    trees = {stage.name: tree for stage, tree in stages}
    keys = {stage.name: list(stage.env) for stage, _ in stages}
    for stage, tree in stages:
        for finding in check_stage_env(inventory, {stage.name: keys[stage.name]}):
            holder = tree.value["env"]
            mistakes.at(holder.keys.get(finding.name or "", (trees[stage.name].line, 1)), finding.message)
