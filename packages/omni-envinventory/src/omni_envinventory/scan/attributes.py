"""Attributes: of modules, classes, instances, the environment's mapping, text and containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import calls, instances, settings, sinks
from .frames import Frame, ScopeId, Spot
from .strings import TEXT_METHODS
from .values import UNKNOWN, Atom, Value, distant, join, of, text

if TYPE_CHECKING:
    from .evaluate import Evaluator

_DICT_METHODS = frozenset(
    {"get", "items", "keys", "values", "pop", "copy", "setdefault", "update", "append", "extend", "index"}
)


def attribute(ev: Evaluator, frame: Frame, base: Value, name: str, spot: Spot) -> Value:
    """``base.name``."""
    found = [_one(ev, frame, atom, name, base, spot) for atom in base.atoms]
    merged = join(found)
    if merged.atoms <= UNKNOWN.atoms or any(atom[0] == "um" for atom in merged.atoms):
        return merged.with_deps(merged.deps | (base.deps if name in TEXT_METHODS else distant(base.deps)))
    return merged


def _one(ev: Evaluator, frame: Frame, atom: Atom, name: str, base: Value, spot: Spot) -> Value:
    kind = atom[0]
    if kind == "ext":
        return sinks.external(f"{atom[1]}.{name}")
    if kind == "mod":
        module = ev.modules[atom[1]]
        return ev.export(module, name)
    if kind == "env":
        return of(("em", atom[1], name)) if name in sinks.METHODS else UNKNOWN
    if kind == "cls":
        if name == "__name__":
            return text(_scope_name(ev, atom[1]))
        return class_attribute(ev, atom[1], name, of(atom), spot) or of(("um", name))
    if kind == "inst":
        return instance_attribute(ev, frame, atom, name, base, spot)
    if kind == "super":
        for sid in ancestors(ev, atom[1])[1:]:
            value = _own(ev, sid, name)
            if value is not None:
                return bind(ev, frame, value, atom[2], atom[1], spot)
        return of(("um", name))
    if kind == "s":
        return of(atom) if name in ("value", "name") else of(("smeth", atom[1], name))
    if kind in ("dict", "seq"):
        return of(("dmeth", atom, name)) if name in _DICT_METHODS else UNKNOWN
    if kind == "fn":
        return text(_scope_name(ev, atom[1])) if name in ("__name__", "__qualname__") else of(("um", name))
    return of(("um", name))


def _scope_name(ev: Evaluator, sid: ScopeId) -> str:
    scopes = ev.modules[sid[0]].scopes
    assert scopes is not None
    return scopes[sid[1]]["name"]


def class_frame(ev: Evaluator, frame: Frame, index: int) -> Frame:
    """The frame of a class body, one per enclosing frame; the newest one answers for the class."""
    sid = (frame.module.number, index)
    known = ev.class_frames.get(sid)
    if known is not None and known.parent is frame:
        return known
    made = ev.frame(frame.module, index, {}, frame, frame.when)
    ev.class_frames[sid] = made
    return made


def class_effects(ev: Evaluator, frame: Frame, index: int) -> None:
    """Evaluate a class body where it is written."""
    made = class_frame(ev, frame, index)
    for decorator in (*made.scope["deco"], *made.scope["bases"]):
        ev.eval(frame, decorator)
    ev.effects(made)
    for raw in made.accesses:
        ev.add(frame, raw)
    settings.settings_class(ev, made)


def ancestors(ev: Evaluator, sid: ScopeId) -> list[ScopeId]:
    """The class and its scanned bases, nearest first (left to right, depth first: enough for names)."""
    order: list[ScopeId] = []
    queue = [sid]
    while queue:
        current = queue.pop(0)
        if current in order:
            continue
        order.append(current)
        frame = ev.class_frames.get(current)
        if frame is None or frame.parent is None:
            continue
        found = [
            atom[1] for base in frame.scope["bases"] for atom in ev.eval(frame.parent, base).atoms if atom[0] == "cls"
        ]
        queue = [*found, *queue]
    return order


def inherited_methods(ev: Evaluator, sid: ScopeId) -> list[tuple[ScopeId, ScopeId]]:
    """Methods a class inherits and does not override: ``(defining class, method)``."""
    seen: set[str] = set()
    found: list[tuple[ScopeId, ScopeId]] = []
    for position, ancestor in enumerate(ancestors(ev, sid)):
        frame = ev.class_frames.get(ancestor)
        if frame is None:
            continue
        for name, nodes in frame.scope["bind"].items():
            if name in seen:
                continue
            seen.add(name)
            if position:
                found += [(ancestor, (ancestor[0], node[1])) for node in nodes if node[0] == "FN"]
    return found


def class_values(ev: Evaluator, sid: ScopeId) -> list[Value]:
    """The plain values of a class body: what iterating an enum gives."""
    frame = ev.class_frames.get(sid)
    if frame is None:
        return [UNKNOWN]
    names = [name for name, nodes in frame.scope["bind"].items() if nodes and nodes[0][0] not in ("FN", "CL", "IM")]
    return [ev.variable(frame, name, None) for name in names if not name.startswith(("_", "#"))] or [UNKNOWN]


def _own(ev: Evaluator, sid: ScopeId, name: str) -> Value | None:
    frame = ev.class_frames.get(sid)
    if frame is None or name not in frame.scope["bind"]:
        return None
    return ev.variable(frame, name, None)


def class_attribute(ev: Evaluator, sid: ScopeId, name: str, receiver: Value, spot: Spot) -> Value | None:
    """An attribute read from the class itself; class methods come bound to it."""
    for ancestor in ancestors(ev, sid):
        value = _own(ev, ancestor, name)
        if value is None:
            continue
        bound: list[Value] = []
        for atom in value.atoms:
            if atom[0] == "fn" and "classmethod" in decorators(ev, atom[1]):
                bound.append(of(("fn", atom[1], atom[2], receiver)))
            else:
                bound.append(of(atom))
        return join(bound).with_deps(value.deps)
    return None


def decorators(ev: Evaluator, sid: ScopeId) -> set[str]:
    """The plain names of a function's decorators, the last part of dotted ones."""
    scopes = ev.modules[sid[0]].scopes
    assert scopes is not None
    found: set[str] = set()
    for node in scopes[sid[1]]["deco"]:
        while node[0] in ("K", "O"):
            node = node[1] if node[0] == "K" else node[2]
        if node[0] in ("N", "V"):
            found.add(node[1])
        elif node[0] == "A":
            found.add(node[2])
    return found


def bind(ev: Evaluator, frame: Frame, value: Value, receiver: Value, sid: ScopeId, spot: Spot) -> Value:
    """A class attribute read through an instance: methods are bound, properties are called."""
    bound: list[Value] = []
    for atom in value.atoms:
        if atom[0] != "fn" or _is_lambda(ev, atom[1]):
            bound.append(Value(frozenset({atom}), value.deps) if atom[0] == "fn" else of(atom))
            continue
        marks = decorators(ev, atom[1])
        if "staticmethod" in marks:
            bound.append(of(atom))
        elif "classmethod" in marks:
            bound.append(of(("fn", atom[1], atom[2], of(("cls", sid)))))
        elif marks & {"property", "cached_property", "setter"}:
            bound.append(calls.call_function(ev, frame, ("fn", atom[1], atom[2], receiver), [], {}, spot))
        else:
            bound.append(of(("fn", atom[1], atom[2], receiver)))
    return join(bound)


def _is_lambda(ev: Evaluator, sid: ScopeId) -> bool:
    scopes = ev.modules[sid[0]].scopes
    assert scopes is not None
    return scopes[sid[1]]["kind"] == "lambda"


def instance_attribute(ev: Evaluator, frame: Frame, atom: Atom, name: str, base: Value, spot: Spot) -> Value:
    """An attribute of an instance: what its methods assign, its class's attribute, or a dataclass field."""
    sid: ScopeId = atom[1]
    if name == "__class__":
        return of(("cls", sid))
    found: list[Value] = []
    lineage = ancestors(ev, sid)
    for ancestor in lineage:
        value = _own(ev, ancestor, name)
        if value is not None:
            found.append(bind(ev, frame, value, Value(frozenset({atom}), base.deps), sid, spot))
            break
    assigned = _assigned(ev, lineage, atom, name)
    if assigned is not None:
        found.append(assigned.with_deps(base.deps if any(d[0] != "?" for d in assigned.deps) else assigned.deps))
    arguments = dict(atom[2]) if atom[2] is not None else {}
    field = next((a for a in lineage if a in ev.class_frames and name in ev.class_frames[a].scope["ann"]), None)
    if field is not None and assigned is None:
        if name in arguments:
            found = [arguments[name].with_deps(base.deps)]
        elif atom[2] is None:
            typed = annotated(ev, ev.class_frames[field], ev.class_frames[field].scope["ann"][name][0])
            found.append(typed.with_deps(base.deps))
    if not found:
        return Value(frozenset({("um", name)}), base.deps)
    return join(found)


def _assigned(ev: Evaluator, lineage: list[ScopeId], atom: Atom, name: str) -> Value | None:
    """What ``self.name = …`` in any method of the class makes the attribute."""
    guard = ("attr", atom, name)
    open_level = ev.open_attributes.get(guard)
    if open_level is not None:
        ev.lowest = min(ev.lowest, open_level)
        return None
    outer = ev.enter()
    ev.open_attributes[guard] = ev.level
    found: list[Value] = []
    for ancestor in lineage:
        owner = ev.class_frames.get(ancestor)
        if owner is None:
            continue
        scopes = owner.module.scopes
        assert scopes is not None
        for nodes in owner.scope["bind"].values():
            for node in nodes:
                if node[0] != "FN" or name not in scopes[node[1]]["selfattr"]:
                    continue
                method = instances.method_frame(ev, (ancestor[0], node[1]), owner, atom)
                found += [ev.eval(method, value) for value in scopes[node[1]]["selfattr"][name]]
    del ev.open_attributes[guard]
    ev.leave(outer)
    return join(found) if found else None


def annotated(ev: Evaluator, frame: Frame, node: list[object] | None) -> Value:
    """An instance of the scanned class that an annotation names, or unknown."""
    if node is None:
        return UNKNOWN
    if node[0] == "B" and node[1] == "|":
        return join([annotated(ev, frame, node[2]), annotated(ev, frame, node[3])])  # type: ignore[arg-type]
    if node[0] == "I":
        return annotated(ev, frame, node[2])  # type: ignore[arg-type]
    if node[0] not in ("N", "V", "A"):
        return UNKNOWN
    value = ev.eval(frame, node)
    known = [of(("inst", atom[1], None)) for atom in value.atoms if atom[0] == "cls"]
    return join(known) if known else Value(UNKNOWN.atoms, frozenset(dep for dep in value.deps if dep[0] == "?"))
