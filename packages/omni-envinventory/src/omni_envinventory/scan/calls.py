"""Calls: of functions with the arguments at hand, of classes, and the definition of functions.

A function's accesses come back to its caller as a summary. An access whose name depends on parameters is placed at the
call that fills them in; if that caller only passes its own parameters on, the access travels further out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import attributes, externals, instances, sinks
from .frames import Frame, Raw, ScopeId, Spot
from .lower import Scope
from .lower_expr import Node
from .strings import TEXT_METHODS
from .strings import method as text_method
from .values import UNKNOWN, Atom, Value, distant, join, of

if TYPE_CHECKING:
    from .evaluate import Evaluator

MAX_DEPTH = 60
MAX_RECURSION = 2
"""A function that calls itself with other arguments is followed this deep; what lies deeper is dynamic."""

CARRIERS = frozenset({"env", "sink", "em", "fn", "part", "inst", "cls", "seq", "dict", "mod", "ext", "super"})
"""Atoms by which a callee may come to touch the environment."""

MAX_CONTEXTS = 1000
"""A function called with more distinct sets of arguments than this is not taken apart further."""


def scope_of(ev: Evaluator, sid: ScopeId) -> Scope:
    """A scope by identity."""
    scopes = ev.modules[sid[0]].scopes
    assert scopes is not None
    return scopes[sid[1]]


def define(ev: Evaluator, frame: Frame, index: int) -> None:
    """A function is defined here: evaluate its decorators, its defaults and, with unknown parameters, its body."""
    sid = (frame.module.number, index)
    scope = scope_of(ev, sid)
    made = of(("fn", sid, frame.number, None))
    for _, default, _ in scope["params"]:
        if default is not None:
            ev.eval(frame, default)
    for node in scope["deco"]:
        value = ev.eval(frame, node)
        if any(atom[0] == "fn" for atom in value.atoms):
            call(ev, frame, value, [made], {}, frame.spot(scope["line"], scope["col"]))
    if scope["idle"]:
        return
    receiver: Value | None = None
    if frame.scope["kind"] == "class":
        marks = attributes.decorators(ev, sid)
        if "classmethod" in marks:
            receiver = of(("cls", frame.sid))
        elif "staticmethod" not in marks:
            receiver = of(("inst", frame.sid, None))
    root(ev, sid, frame, receiver)


def root(ev: Evaluator, sid: ScopeId, parent: Frame, receiver: Value | None) -> Frame:
    """Evaluate a function with unknown parameters; what depends on them waits for a caller."""
    key = ("root", sid, parent.number, receiver)
    known = ev.contexts.get(key)
    if known is not None:
        return known
    scope = scope_of(ev, sid)
    made = ev.frame(parent.module, sid[1], {}, parent, "call")
    ev.contexts[key] = made
    ev.roots[sid] = made
    for position, (name, default, annotation) in enumerate(scope["params"]):
        dep = frozenset({(sid, name)})
        if position == 0 and receiver is not None:
            made.params[name] = receiver.with_deps(dep)
            continue
        value = attributes.annotated(ev, parent, annotation)
        if default is not None:
            value = join([value, ev.eval(parent, default)])
        made.params[name] = value.with_deps(dep)
    for extra in (scope["vararg"], scope["kwarg"]):
        if extra:
            made.params[extra] = Value(UNKNOWN.atoms, frozenset({(sid, extra)}))
    if ev.depth < MAX_DEPTH:
        ev.depth += 1
        ev.effects(made)
        ev.depth -= 1
    made.done = True
    for raw in made.accesses:
        own = frozenset(dep for dep in raw.needs if dep[0] == sid)
        if own:
            ev.pending.setdefault(sid, {})[raw] = None
        elif raw.needs and parent.scope["kind"] in ("function", "lambda"):
            ev.add(parent, raw)
    return made


def call_node(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """A call as written."""
    callee = ev.eval(frame, node[1])
    spot = frame.spot(node[4], node[5])
    arguments: list[Value] = []
    loose = False
    for argument in node[2]:
        if argument[0] == "*":
            spread = ev.eval(frame, argument[1])
            atom = next(iter(spread.atoms)) if len(spread.atoms) == 1 else ("?",)
            if atom[0] == "seq" and atom[2]:
                arguments += [value.with_deps(value.deps | spread.deps) for value in atom[1]]
            else:
                sinks.consumed(ev, frame, spread, "spread", spot)
                arguments.append(ev.elements(spread))
                loose = True
        else:
            arguments.append(ev.eval(frame, argument))
    named: dict[str, Value] = {}
    for name, content in node[3]:
        value = ev.eval(frame, content)
        if name is not None:
            named[name] = value
            continue
        for atom in value.atoms:
            if atom[0] == "dict":
                for key, entry in atom[1]:
                    named.update({a[1]: entry for a in key.atoms if a[0] == "s"})
            else:
                sinks.consumed(ev, frame, of(atom), "spread", spot)
                loose = True
    return call(ev, frame, callee, arguments, named, spot, loose)


def call(
    ev: Evaluator,
    frame: Frame,
    callee: Value,
    arguments: list[Value],
    named: dict[str, Value],
    spot: Spot,
    loose: bool = False,
) -> Value:
    """The value of a call of anything."""
    results = [_one(ev, frame, atom, callee, arguments, named, spot, loose) for atom in callee.atoms]
    return join(results) if results else UNKNOWN


def _one(
    ev: Evaluator,
    frame: Frame,
    atom: Atom,
    callee: Value,
    arguments: list[Value],
    named: dict[str, Value],
    spot: Spot,
    loose: bool,
) -> Value:
    kind = atom[0]
    if kind == "fn":
        return call_function(ev, frame, atom, arguments, named, spot, loose)
    if kind == "sink":
        return sinks.function(ev, frame, atom, arguments, named, spot)
    if kind == "em":
        return sinks.method(ev, frame, atom[1], atom[2], arguments, named, spot)
    if kind == "cls":
        return instances.instantiate(ev, frame, atom[1], arguments, named, spot)
    if kind == "smeth":
        return text_method(atom[1], atom[2], arguments, named)
    if kind == "dmeth":
        return externals.container_method(ev, frame, atom[1], atom[2], arguments, spot)
    if kind == "part":
        return call(ev, frame, atom[1], [*atom[2], *arguments], {**dict(atom[3]), **named}, spot, loose)
    if kind == "inst":
        method = attributes.attribute(ev, frame, of(atom), "__call__", spot)
        return (
            call(ev, frame, method, arguments, named, spot, loose)
            if any(a[0] == "fn" for a in method.atoms)
            else UNKNOWN
        )
    if kind == "ext":
        return externals.call_external(ev, frame, atom[1], arguments, named, spot)
    deps = callee.deps | frozenset(dep for value in (*arguments, *named.values()) for dep in value.deps)
    if kind == "um":
        for sid in ev.loose_methods.get(atom[1], ()):
            owner = ev.class_frames.get((sid[0], scope_of(ev, sid)["parent"]))
            if owner is not None:
                receiver = of(("inst", owner.sid, None))
                call_function(ev, frame, ("fn", sid, owner.number, receiver), arguments, named, spot, loose)
    externals.unknown_call(ev, frame, atom[1] if kind == "um" else "", arguments, named, spot)
    return Value(UNKNOWN.atoms, deps if kind == "um" and atom[1] in TEXT_METHODS else distant(deps))


def bind_arguments(
    ev: Evaluator, atom: Atom, scope: Scope, arguments: list[Value], named: dict[str, Value], loose: bool
) -> dict[str, Value]:
    """What each parameter is for these arguments, defaults filled in."""
    given = [atom[3], *arguments] if atom[3] is not None else arguments
    bound: dict[str, Value] = {}
    defining = ev.frames[atom[2]]
    for position, (name, default, _) in enumerate(scope["params"]):
        if position < scope["positional"] and position < len(given):
            bound[name] = given[position]
        elif name in named:
            bound[name] = named[name]
        elif default is not None:
            bound[name] = ev.eval(defining, default)
            if loose:
                bound[name] = join([bound[name], UNKNOWN])
        else:
            bound[name] = join([*given[-1:], UNKNOWN]) if loose and given else UNKNOWN
    if scope["vararg"]:
        rest = tuple(given[scope["positional"] :])
        deps = frozenset(dep for value in rest for dep in value.deps)
        bound[scope["vararg"]] = Value(frozenset({("seq", rest, not loose)}), deps)
    if scope["kwarg"]:
        known = {parameter[0] for parameter in scope["params"]}
        pairs = tuple((of(("s", name)), value) for name, value in named.items() if name not in known)
        deps = frozenset(dep for _, value in pairs for dep in value.deps)
        bound[scope["kwarg"]] = Value(frozenset({("dict", pairs, not loose)}), deps)
    return bound


def call_function(
    ev: Evaluator,
    frame: Frame,
    atom: Atom,
    arguments: list[Value],
    named: dict[str, Value],
    spot: Spot,
    loose: bool = False,
) -> Value:
    """Evaluate a scanned function for these arguments and take over its accesses."""
    sid: ScopeId = atom[1]
    scope = scope_of(ev, sid)
    values = [*arguments, *named.values()]
    if scope["skipped"] or (scope["idle"] and scope["kind"] == "function"):
        for value in values:
            for handed in value.atoms:
                if handed[0] in ("env", "sink", "em", "part"):
                    ev.wanted.add((sid[0], scope["name"]))
                elif handed[0] == "fn":
                    ev.handed.add((handed[1], sid[0], scope["name"]))
        return Value(UNKNOWN.atoms, frozenset({("?", sid[0], scope["name"])}))
    bound = bind_arguments(ev, atom, scope, arguments, named, loose)
    ev.called.add(sid)
    stripped = {name: value.with_deps(frozenset({(sid, name)})) for name, value in bound.items()}
    key: Any = (sid, atom[2], tuple(stripped.items()))
    made = ev.contexts.get(key)
    if made is None:
        open_calls = ev.active.get(sid, 0)
        if open_calls >= MAX_RECURSION or ev.depth >= MAX_DEPTH or ev.counts.get(sid, 0) >= MAX_CONTEXTS:
            ev.escape(frame, of(atom), spot)
            return UNKNOWN
        ev.active[sid] = open_calls + 1
        ev.counts[sid] = ev.counts.get(sid, 0) + 1
        parent = ev.frames[atom[2]]
        made = ev.frame(parent.module, sid[1], stripped, parent, "call")
        ev.contexts[key] = made
        ev.depth += 1
        if not _quiet(ev, sid, values):
            ev.effects(made)
        made.result = _result(ev, made)
        ev.depth -= 1
        ev.active[sid] = open_calls
    dependencies = {name: frozenset(dep for dep in value.deps if dep[0] != "?") for name, value in bound.items()}
    take_over(ev, frame, made, sid, dependencies, spot)
    if made.result is None:
        return UNKNOWN  # a recursive call
    deps: set[Any] = set()
    for dep in made.result.deps:
        deps |= bound[dep[1]].deps if dep[0] == sid and dep[1] in bound else {dep}
    return made.result.with_deps(frozenset(deps))


def _quiet(ev: Evaluator, sid: ScopeId, values: list[Value]) -> bool:
    """Whether a function touches nothing by itself and is handed nothing that could: only its result matters then."""
    root = ev.roots.get(sid)
    if root is None or not root.done or root.accesses:
        return False
    return not any(atom[0] in CARRIERS for value in values for atom in value.atoms)


def _result(ev: Evaluator, frame: Frame) -> Value:
    results = [ev.eval(frame, node) for node in frame.scope["ret"]]
    if frame.scope["yields"]:
        results.append(of(("seq", tuple(ev.eval(frame, node) for node in frame.scope["yields"]), False)))
    return join(results) if results else of(("c", None))


def take_over(
    ev: Evaluator, frame: Frame, made: Frame, sid: ScopeId, dependencies: dict[str, frozenset[Any]], spot: Spot
) -> None:
    """Carry a callee's accesses into the caller's frame, placing those that the call's arguments name."""
    for raw in list(made.accesses):
        own = [dep for dep in raw.needs if dep[0] == sid]
        if not own:
            if raw.needs or frame.when == "import":
                ev.add(frame, raw)
            else:
                frame.accesses[raw] = None
            continue
        needs = frozenset(dep for dep in raw.needs if dep[0] != sid)
        for dep in own:
            if len(dep) == 2:
                needs |= dependencies.get(dep[1], frozenset())
        ev.add(frame, Raw(raw.name, raw.operation, raw.form, spot, needs, raw.via or raw.spot, raw.detail, frame.when))
