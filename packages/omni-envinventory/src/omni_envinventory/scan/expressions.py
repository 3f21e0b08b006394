"""What each kind of expression evaluates to."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import attributes, calls, sinks, uses
from .frames import Frame
from .lower_expr import Node
from .strings import percent
from .values import NOTHING, UNKNOWN, UNKNOWN_ATOM, Atom, Value, concatenate, join, of

if TYPE_CHECKING:
    from .evaluate import Evaluator


def correlated(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """An expression evaluated once per element of a loop, so that its parts vary together."""
    number, inner = node[1], node[2]
    if number in frame.overrides:
        return ev.eval(frame, inner)
    elements = ev.loop_elements(frame, number)
    if not elements:
        return ev.eval(frame, inner)
    results: list[Value] = []
    for element in elements:
        frame.overrides[number] = element
        try:
            results.append(ev.eval(frame, inner))
        finally:
            del frame.overrides[number]
    return join(results)


def loop_variable(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """A loop's target: one pinned element, or any of them."""
    pinned = frame.overrides.get(node[1])
    if pinned is None:
        pinned = ev.elements(ev.eval(frame, frame.scope["loops"][node[1]]))
    return ev.pick(pinned, node[2])


def children(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """Evaluate parts for their effects; only what they depend on is kept."""
    deps: frozenset[Any] = frozenset()
    for child in node[1]:
        deps |= ev.eval(frame, child).deps
    return Value(UNKNOWN.atoms, deps)


def sequence(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """A literal sequence with spread elements taken apart where they are known."""
    elements: list[Value] = []
    exact = True
    for child in node[1]:
        if child[0] == "*":
            spread = ev.eval(frame, child[1])
            sinks.consumed(ev, frame, spread, "spread", frame.spot(frame.scope["line"], 0))
            atom = next(iter(spread.atoms)) if len(spread.atoms) == 1 else UNKNOWN_ATOM
            if atom[0] == "seq" and atom[2]:
                elements += atom[1]
            else:
                elements.append(ev.elements(spread))
                exact = False
        else:
            elements.append(ev.eval(frame, child))
    deps = frozenset(dep for element in elements for dep in element.deps)
    return Value(frozenset({("seq", tuple(elements), exact)}), deps)


def dictionary(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """A literal dict; ``**os.environ`` makes it a copy of the environment as well."""
    pairs: list[tuple[Value, Value]] = []
    extra: set[Atom] = set()
    complete = True
    for key, content in node[1]:
        value = ev.eval(frame, content)
        if key is not None:
            pairs.append((ev.eval(frame, key), value))
            continue
        for atom in value.atoms:
            if atom[0] == "dict":
                pairs += atom[1]
            elif atom[0] == "env":
                sinks.bulk(ev, frame, "copy", frame.spot(node[2], node[3]), "read")
                extra.add(("env", "copy"))
            elif atom != ("c", None):
                complete = False
    return Value(frozenset({("dict", tuple(pairs), complete), *extra}))


def binary(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """``+`` and ``%`` on text, ``+`` on sequences, ``|`` on mappings."""
    left, right = ev.eval(frame, node[2]), ev.eval(frame, node[3])
    spot = frame.spot(node[4], node[5])
    if node[1] == "|":
        return sinks.union(ev, frame, left, right, spot)
    if node[1] == "%":
        return percent(left, right)
    if any(atom[0] == "seq" for atom in left.atoms):
        parts = [atom for value in (left, right) for atom in value.atoms]
        exact = len(parts) == 2 and all(atom[0] == "seq" and atom[2] for atom in parts)
        elements = [element for atom in parts for element in (atom[1] if atom[0] == "seq" else [UNKNOWN])]
        return Value(frozenset({("seq", tuple(elements), exact)}), left.deps | right.deps)
    return concatenate([left, right])


def alternatives(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """Any of several; the unknown value of a mere test is no alternative."""
    values = [ev.eval(frame, child) for child in node[1]]
    return join(value for child, value in zip(node[1], values) if child[0] != "X" or len(node[1]) == 1)


def imported(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """A name that an import binds."""
    target = frame.module.resolve(node[1], node[3])
    module = ev.module_of(target)
    if node[2] is None:
        return of(("mod", module.number)) if module is not None else sinks.external(target)
    if module is not None:
        if module is frame.module:
            inner = ev.module_of(f"{target}.{node[2]}")
            return of(("mod", inner.number)) if inner is not None else UNKNOWN
        return ev.export(module, node[2])
    inner = ev.module_of(f"{target}.{node[2]}")
    return of(("mod", inner.number)) if inner is not None else sinks.external(f"{target}.{node[2]}")


def main_guard(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """Effects that run only when the module is the program: call time."""
    held, frame.when = frame.when, "call"
    for effect in node[1]:
        ev.eval(frame, effect)
    frame.when = held
    return NOTHING


def managed(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """What ``with … as`` binds: what a generator yields, what ``__enter__`` gives, or the object itev."""
    value = ev.eval(frame, node[1])
    given = [ev.elements(of(atom)) if atom[0] == "seq" else of(atom) for atom in value.atoms]
    return join(given).with_deps(value.deps)


def element_list(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """A comprehension: a sequence of unknown length over one element."""
    value = ev.eval(frame, node[1])
    return Value(frozenset({("seq", (value,), False)}), value.deps)


def dict_comprehension(ev: Evaluator, frame: Frame, node: Node) -> Value:
    """A dict comprehension."""
    return of(("dict", ((ev.eval(frame, node[1]), ev.eval(frame, node[2])),), True))


def _joined(ev: Evaluator, frame: Frame, node: Node) -> Value:
    return concatenate([ev.eval(frame, part) for part in node[1]])


def _constant(ev: Evaluator, frame: Frame, node: Node) -> Value:
    return of(("c", node[1]))


def _lambda(ev: Evaluator, frame: Frame, node: Node) -> Value:
    calls.define(ev, frame, node[1])
    return of(("fn", (frame.module.number, node[1]), frame.number, None))


def _function(ev: Evaluator, frame: Frame, node: Node) -> Value:
    return of(("fn", (frame.module.number, node[1]), frame.number, None))


def _define(ev: Evaluator, frame: Frame, node: Node) -> Value:
    calls.define(ev, frame, node[1])
    return NOTHING


def _class(ev: Evaluator, frame: Frame, node: Node) -> Value:
    attributes.class_frame(ev, frame, node[1])
    return of(("cls", (frame.module.number, node[1])))


def _class_body(ev: Evaluator, frame: Frame, node: Node) -> Value:
    attributes.class_effects(ev, frame, node[1])
    return NOTHING


def _call(ev: Evaluator, frame: Frame, node: Node) -> Value:
    return calls.call_node(ev, frame, node)


def _attribute(ev: Evaluator, frame: Frame, node: Node) -> Value:
    return attributes.attribute(ev, frame, ev.eval(frame, node[1]), node[2], frame.spot(node[3], node[4]))


def _picked(ev: Evaluator, frame: Frame, node: Node) -> Value:
    return ev.pick(ev.eval(frame, node[1]), node[2])


EVALUATORS: dict[str, Callable[[Evaluator, Frame, Node], Value]] = {
    "A": _attribute,
    "B": binary,
    "C": _constant,
    "CL": _class,
    "CLS": _class_body,
    "CM": managed,
    "D": dictionary,
    "DEF": _define,
    "E": loop_variable,
    "FN": _function,
    "IM": imported,
    "J": _joined,
    "K": _call,
    "L": _lambda,
    "M": dict_comprehension,
    "MAIN": main_guard,
    "O": correlated,
    "P": _picked,
    "Q": element_list,
    "T": sequence,
    "U": alternatives,
    "X": children,
    **uses.EVALUATORS,
}
