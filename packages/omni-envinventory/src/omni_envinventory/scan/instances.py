"""Instances: construction, and the frames in which their attributes were assigned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import attributes, calls
from .frames import Frame, ScopeId, Spot
from .values import UNKNOWN, Atom, Value, of

if TYPE_CHECKING:
    from .evaluate import Evaluator


def method_frame(ev: Evaluator, sid: ScopeId, owner: Frame, instance: Atom) -> Frame:
    """The frame in which an instance's attributes were assigned; a constructor knows its arguments."""
    scope = calls.scope_of(ev, sid)
    receiver = of(instance)
    if scope["name"] == "__init__" and instance[2] is not None:
        key = ("init", sid, owner.number, instance)
        known = ev.contexts.get(key)
        if known is not None:
            return known
        made = ev.frame(owner.module, sid[1], {}, owner, "call")
        ev.contexts[key] = made
        given = dict(instance[2])
        for position, (name, default, _) in enumerate(scope["params"]):
            dep = frozenset({(sid, name)})
            if position == 0:
                made.params[name] = receiver
            elif name in given:
                made.params[name] = given[name].with_deps(dep)
            else:
                made.params[name] = ev.eval(owner, default) if default is not None else Value(UNKNOWN.atoms, dep)
        return made
    known = ev.contexts.get(("root", sid, owner.number, of(("inst", instance[1], None))))
    return known if known is not None else calls.root(ev, sid, owner, of(("inst", instance[1], None)))


def instantiate(
    ev: Evaluator, frame: Frame, sid: ScopeId, arguments: list[Value], named: dict[str, Value], spot: Spot
) -> Value:
    """A new instance: its constructor runs, and the arguments are kept for its attributes."""
    deps = frozenset(dep for value in (*arguments, *named.values()) for dep in value.deps)
    constructor: Atom | None = None
    for ancestor in attributes.ancestors(ev, sid):
        owner = ev.class_frames.get(ancestor)
        nodes = owner.scope["bind"].get("__init__") if owner is not None else None
        if owner is not None and nodes and nodes[-1][0] == "FN":
            constructor = ("fn", (ancestor[0], nodes[-1][1]), owner.number, None)
            break
    given: list[tuple[str, Value]] = []
    if constructor is not None:
        scope = calls.scope_of(ev, constructor[1])
        bound = calls.bind_arguments(ev, constructor, scope, [UNKNOWN, *arguments], named, False)
        names = [parameter[0] for parameter in scope["params"][1:]]
        given = [(name, bound[name].with_deps(frozenset())) for name in names if name in bound]
    else:
        fields = [
            name
            for a in reversed(attributes.ancestors(ev, sid))
            if a in ev.class_frames
            for name in ev.class_frames[a].scope["ann"]
        ]
        given = [(name, value.with_deps(frozenset())) for name, value in zip(fields, arguments)]
        given += [(name, value.with_deps(frozenset())) for name, value in named.items()]
        if len(arguments) == 1 and not fields and _is_enum(ev, sid):
            return arguments[0]
    made: Atom = ("inst", sid, tuple(given))
    if constructor is not None:
        receiver = Value(frozenset({made}), deps)
        calls.call_function(ev, frame, (*constructor[:3], receiver), arguments, named, spot)
    return Value(frozenset({made}), deps)


def _is_enum(ev: Evaluator, sid: ScopeId) -> bool:
    frame = ev.class_frames.get(sid)
    if frame is None or frame.parent is None:
        return False
    bases = [atom for node in frame.scope["bases"] for atom in ev.eval(frame.parent, node).atoms]
    return any(atom[0] == "ext" and atom[1].startswith("enum.") for atom in bases)
