"""Statements and operators that may use the environment: subscripts, deletion, membership, iteration, assignment."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import attributes, sinks
from .frames import Frame
from .lower_expr import Node
from .values import NOTHING, UNKNOWN, WILD, Atom, Value, distant, join, of

if TYPE_CHECKING:
    from .evaluate import Evaluator


def _subscript(ev: Evaluator, frame: Frame, node: Node) -> Value:
    base, key = ev.eval(frame, node[1]), ev.eval(frame, node[2])
    spot = frame.spot(node[3], node[4])
    results: list[Value] = []
    for atom in base.atoms:
        if atom[0] == "env":
            sinks.note(ev, frame, key, "read", sinks.label(atom[1], "[]"), spot)
            results.append(UNKNOWN)
        else:
            results.append(item(ev, atom, key))
    merged = join(results)
    return merged.with_deps(merged.deps | distant(base.deps | key.deps))


def item(ev: Evaluator, atom: Atom, key: Value) -> Value:
    """``container[key]`` for the containers whose content is known."""
    if atom[0] == "seq":
        indices = [a[1] for a in key.atoms if a[0] == "c" and isinstance(a[1], int)]
        if atom[2] and len(indices) == len(key.atoms) and all(-len(atom[1]) <= i < len(atom[1]) for i in indices):
            return join(atom[1][i] for i in indices)
        if not key.bare and not indices:
            return of(atom)  # a slice
        return join(atom[1])
    if atom[0] == "dict":
        wanted = {a for a in key.atoms if a[0] in ("s", "c")}
        chosen = [value for entry, value in atom[1] if not wanted or wanted & entry.atoms or _loose(entry)]
        return join(chosen) if chosen else UNKNOWN
    if atom[0] == "cls":
        named = [
            ev.variable(ev.class_frames[atom[1]], a[1], None)
            for a in key.atoms
            if a[0] == "s" and atom[1] in ev.class_frames
        ]
        return join(named) if named else join(attributes.class_values(ev, atom[1]))
    return UNKNOWN


def _loose(entry: Value) -> bool:
    return any(atom[0] not in ("s", "c") or (atom[0] == "s" and WILD in atom[1]) for atom in entry.atoms)


def _store(ev: Evaluator, frame: Frame, node: Node) -> Value:
    base = ev.eval(frame, node[1])
    if any(atom[0] == "env" for atom in base.atoms):
        key = ev.eval(frame, node[2])
        for atom in base.atoms:
            if atom[0] == "env":
                sinks.note(ev, frame, key, "write", sinks.label(atom[1], "[]="), frame.spot(node[4], node[5]))
    ev.eval(frame, node[3])
    return NOTHING


def _delete(ev: Evaluator, frame: Frame, node: Node) -> Value:
    key = ev.eval(frame, node[2])
    for atom in ev.eval(frame, node[1]).atoms:
        if atom[0] == "env":
            sinks.note(ev, frame, key, "delete", f"del {sinks.label(atom[1], '[]')}", frame.spot(node[3], node[4]))
    return NOTHING


def _contains(ev: Evaluator, frame: Frame, node: Node) -> Value:
    container, key = ev.eval(frame, node[1]), ev.eval(frame, node[2])
    for atom in container.atoms:
        if atom[0] == "env":
            sinks.note(ev, frame, key, "membership", f"in {sinks.label(atom[1], '')}", frame.spot(node[3], node[4]))
    return UNKNOWN


def _update(ev: Evaluator, frame: Frame, node: Node) -> Value:
    base, value = ev.eval(frame, node[1]), ev.eval(frame, node[2])
    for atom in base.atoms:
        if atom[0] == "env":
            sinks.write_all(ev, frame, value, sinks.label(atom[1], " |="), frame.spot(node[3], node[4]))
    return NOTHING


def _iterate(ev: Evaluator, frame: Frame, node: Node) -> Value:
    iterable = ev.eval(frame, frame.scope["loops"][node[1]])
    sinks.consumed(ev, frame, iterable, "iteration", frame.spot(node[2], node[3]))
    return NOTHING


def _whole(ev: Evaluator, frame: Frame, node: Node) -> Value:
    sinks.consumed(ev, frame, ev.eval(frame, node[1]), "match", frame.spot(node[2], node[3]))
    return NOTHING


def _store_attribute(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """Putting the environment, or one of its functions, where it cannot be followed is a use of the whole."""
    value, base = ev.eval(frame, node[3]), ev.eval(frame, node[1])
    if not any(atom[0] in ("inst", "cls", "mod") for atom in base.atoms):
        sinks.consumed(ev, frame, value, f"stored as .{node[2]}", frame.spot(node[4], node[5]))
        ev.escape(frame, value, frame.spot(node[4], node[5]))
    return NOTHING


EVALUATORS: dict[str, Callable[[Any, Frame, Node], Value]] = {
    "I": _subscript,
    "H": _contains,
    "=S": _store,
    "=D": _delete,
    "=A": _store_attribute,
    "|=": _update,
    "ITER": _iterate,
    "ALL": _whole,
}
