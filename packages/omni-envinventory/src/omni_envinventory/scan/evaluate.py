"""Evaluation of reduced code: which values can an expression have, in which frame.

Names are evaluated lazily and remembered per frame, so each binding is looked at once. A function is evaluated with
unknown parameters once, and again for every distinct set of arguments that some call hands it: that is how a name
travels through wrappers of any depth, and how a mapping, a getter or an instance travels as an argument.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from . import attributes, calls, sinks
from .expressions import EVALUATORS
from .frames import Frame, Module, Raw, ScopeId, Spot
from .lower_expr import Node
from .values import UNKNOWN, UNKNOWN_ATOM, Atom, Value, join, of, text

NO_CYCLE = 1 << 60

MAX_ELEMENTS = 300
"""Loops over more elements than this are not taken apart element by element."""


class Evaluator:
    """Evaluates a set of modules; make a new one whenever the reductions change.

    Args:
        modules: The program; those whose ``scopes`` is None are asked for through ``wanted`` when a name needs them.
        loose_methods: Wrapper methods, by name, that a call on a receiver of unknown type may mean.
    """

    def __init__(self, modules: list[Module], loose_methods: dict[str, list[ScopeId]]) -> None:
        self.modules = modules
        self.by_name = {module.name: module for module in modules}
        self.loose_methods = loose_methods
        self.frames: list[Frame] = []
        self.module_frames: dict[int, Frame] = {}
        self.class_frames: dict[ScopeId, Frame] = {}
        self.contexts: dict[Any, Frame] = {}
        self.roots: dict[ScopeId, Frame] = {}
        self.called: set[ScopeId] = set()
        self.located: dict[Raw, None] = {}
        self.pending: dict[ScopeId, dict[Raw, None]] = {}
        self.escaped: dict[ScopeId, Spot] = {}
        self.wanted: set[tuple[int, str]] = set()
        self.settings: set[ScopeId] = set()
        self.handed: set[tuple[ScopeId, int, str]] = set()
        self.level = 0
        self.lowest = NO_CYCLE
        self.open_attributes: dict[Any, int] = {}
        self.counts: dict[ScopeId, int] = {}
        self.active: dict[ScopeId, int] = {}
        self.depth = 0

    # -- running ---------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Evaluate every reduced module, every function in it with unknown parameters, and inherited methods."""
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(limit, 20_000))
        try:
            for module in self.modules:
                if module.scopes is not None:
                    frame = self.module_frame(module)
                    self.effects(frame)
                    self.settle(frame)
            self.inherited()
        finally:
            sys.setrecursionlimit(limit)

    def frame(self, module: Module, index: int, params: dict[str, Value], parent: Frame | None, when: str) -> Frame:
        """A new frame of a reduced scope."""
        assert module.scopes is not None
        made = Frame(len(self.frames), module, index, module.scopes[index], params, parent, when)
        self.frames.append(made)
        return made

    def module_frame(self, module: Module) -> Frame:
        """The one frame of a module; its names are evaluated when asked for, its effects by ``run``."""
        known = self.module_frames.get(module.number)
        if known is not None:
            return known
        made = self.frame(module, 0, {}, None, "import")
        self.module_frames[module.number] = made
        return made

    def settle(self, frame: Frame) -> None:
        """Located accesses of a module are final; there is no caller left to ask."""
        for raw in frame.accesses:
            self.located[
                Raw(raw.name, raw.operation, raw.form, raw.spot, frozenset(), raw.via, raw.detail, raw.when)
            ] = None

    def effects(self, frame: Frame) -> None:
        """Evaluate the effects of a scope in order."""
        for node in frame.scope["body"]:
            self.eval(frame, node)

    def inherited(self) -> None:
        """Evaluate methods of base classes once more for each class below that inherits them."""
        for sid in list(self.class_frames):
            for base, method in attributes.inherited_methods(self, sid):
                root = self.roots.get(method)
                if root is not None and (root.accesses or method in self.pending):
                    self.called.add(method)
                    parent = self.class_frames[base]
                    calls.root(self, method, parent, of(("inst", sid, None)))

    # -- results ---------------------------------------------------------------------------------------------------

    def add(self, frame: Frame, raw: Raw) -> None:
        """Note an access in the frame where it happens."""
        if frame.when == "import" and raw.when != "import":
            raw = Raw(raw.name, raw.operation, raw.form, raw.spot, raw.needs, raw.via, raw.detail, "import")
        frame.accesses[raw] = None
        if not raw.needs:
            self.located[raw] = None

    def escape(self, frame: Frame, value: Value, spot: Spot) -> None:
        """A function went where its calls cannot be followed: what it would read is dynamic from here on."""
        for atom in value.atoms:
            if atom[0] == "fn":
                self.escaped.setdefault(atom[1], spot)
            elif atom[0] in ("sink", "em"):
                form = atom[2] if atom[0] == "sink" else sinks.label(atom[1], f".{atom[2]}")
                if atom[2] not in ("keys", "items", "values", "copy"):
                    detail = f"{form} itself is handed on"
                    self.add(frame, Raw(None, "read", form, spot, frozenset(), None, detail, frame.when))

    def note_eval(self, frame: Frame, spot: Spot) -> None:
        """Source text that speaks of the environment is about to be executed: nothing static sees into it."""
        detail = "text that mentions the environment is executed"
        self.add(frame, Raw(None, "read", "eval", spot, frozenset(), None, detail, frame.when))

    def module_of(self, name: str) -> Module | None:
        """A scanned module by dotted name; those that define the environment are known better than they can be read."""
        return None if name in sinks.OWN_MODULES else self.by_name.get(name)

    # -- names -----------------------------------------------------------------------------------------------------

    def name(self, frame: Frame, name: str) -> Value:
        """A name as this frame sees it: its own scope, enclosing functions, the module, then nothing."""
        walk: Frame | None = frame
        while walk is not None:
            own = walk.scope
            if (own["kind"] != "class" or walk is frame) and (name in own["bind"] or name in walk.params):
                return self.variable(walk, name, None)
            walk = walk.parent
        return self.global_name(frame.module, name)

    def global_name(self, module: Module, name: str) -> Value:
        """A name the module has from a star import or the builtins."""
        assert module.scopes is not None
        for star, level in module.scopes[0]["stars"]:
            target = module.resolve(star, level)
            internal = self.module_of(target)
            if internal is not None and internal is not module:
                found = self.export(internal, name)
                if not found.bare:
                    return found
            elif internal is None:
                external = sinks.external(f"{target}.{name}")
                if next(iter(external.atoms))[0] in ("env", "sink"):
                    return external
        return of(("ext", f"builtins.{name}")) if name in sinks.BUILTINS else UNKNOWN

    def export(self, module: Module, name: str) -> Value:
        """What ``from module import name`` gives."""
        inner = self.module_of(f"{module.name}.{name}")
        if module.scopes is None:
            request = Value(frozenset({UNKNOWN_ATOM}), frozenset({("?", module.number, name)}))
            return of(("mod", inner.number)) if inner is not None else request
        top = module.scopes[0]
        if name in top["bind"]:
            return self.variable(self.module_frame(module), name, None)
        if inner is not None:
            return of(("mod", inner.number))
        guard = ("star", name)
        frame = self.module_frame(module)
        if guard in frame.busy:
            return UNKNOWN
        frame.busy[guard] = 0
        found = self.global_name(module, name)
        del frame.busy[guard]
        return UNKNOWN if any(atom[0] == "ext" and atom[1].startswith("builtins.") for atom in found.atoms) else found

    def variable(self, frame: Frame, name: str, indices: list[int] | None) -> Value:
        """The join of a variable's bindings (those of ``indices``, or all) with what was added to its container."""
        key = (name, tuple(indices) if indices is not None else None)
        pinned = bool(frame.overrides)
        if not pinned:
            known = frame.variables.get(key)
            if known is not None:
                return known
        open_level = frame.busy.get(key)
        if open_level is not None:
            self.lowest = min(self.lowest, open_level)
            return UNKNOWN
        outer = self.enter()
        frame.busy[key] = self.level
        bindings = frame.scope["bind"].get(name, [])
        values: list[Value] = []
        if name in frame.params and (indices is None or -1 in indices):
            values.append(frame.params[name])
        chosen: Iterable[Node] = (
            bindings if indices is None else [bindings[i] for i in indices if 0 <= i < len(bindings)]
        )
        values += [self.eval(frame, node) for node in chosen]
        value = join(values) if len(values) != 1 else values[0]
        if not values:
            value = UNKNOWN
        added = frame.scope["mut"].get(name)
        if added:
            value = self.mutated(frame, value, added)
        del frame.busy[key]
        if self.leave(outer) and not pinned:
            frame.variables[key] = value
        return value

    def enter(self) -> int:
        """Start an evaluation that may turn out to be part of a cycle; gives what ``leave`` needs."""
        self.level += 1
        outer, self.lowest = self.lowest, NO_CYCLE
        return outer

    def leave(self, outer: int) -> bool:
        """End it; True when the value is whole, False when it took an outer unfinished value for unknown."""
        whole = self.lowest >= self.level
        self.lowest = outer if whole else min(outer, self.lowest)
        self.level -= 1
        return whole

    def mutated(self, frame: Frame, value: Value, added: list[Node]) -> Value:
        """A container with everything that was ever put into it."""
        if not any(atom[0] in ("seq", "dict") for atom in value.atoms):
            return value
        elements: list[Value] = []
        pairs: list[tuple[Value, Value]] = []
        complete = True
        for entry in added:
            if entry[0] == "item":
                pairs.append((self.eval(frame, entry[1]), self.eval(frame, entry[2])))
            elif entry[0] == "elt":
                elements.append(self.eval(frame, entry[1]))
            elif entry[0] == "ext":
                elements.append(self.elements(self.eval(frame, entry[1])))
            else:
                for atom in self.eval(frame, entry[1]).atoms:
                    if atom[0] == "dict":
                        pairs += atom[1]
                    else:
                        complete = False
        atoms: set[Atom] = set()
        for atom in value.atoms:
            if atom[0] == "seq" and elements:
                atoms.add(("seq", tuple(dict.fromkeys((*atom[1], *elements))), False))
            elif atom[0] == "dict":
                atoms.add(("dict", tuple(dict.fromkeys((*atom[1], *pairs))), atom[2] and complete))
            else:
                atoms.add(atom)
        return Value(frozenset(atoms), value.deps)

    # -- containers ------------------------------------------------------------------------------------------------

    def elements(self, value: Value) -> Value:
        """Any element of an iterable."""
        found: list[Value] = []
        for atom in value.atoms:
            if atom[0] == "seq":
                found += atom[1]
            elif atom[0] == "dict":
                found += [key for key, _ in atom[1]]
            elif atom[0] == "env":
                found.append(of(("any",)))
            elif atom[0] == "cls":
                found += attributes.class_values(self, (atom[1][0], atom[1][1]))
            elif atom[0] == "s" and "\0" not in atom[1] and len(atom[1]) <= 64:
                found += [text(letter) for letter in atom[1]]
            else:
                found.append(UNKNOWN)
        joined = join(found)
        return joined.with_deps(joined.deps | value.deps)

    def pick(self, value: Value, path: list[int]) -> Value:
        """The part of an unpacked value at a path; -1 stands for a starred rest."""
        for index in path:
            parts: list[Value] = []
            for atom in value.atoms:
                if atom[0] == "seq" and atom[2] and 0 <= index < len(atom[1]):
                    parts.append(atom[1][index])
                elif atom[0] == "seq" and index == -1:
                    parts.append(of(("seq", atom[1], False)))
                elif atom[0] == "seq":
                    parts += atom[1]
                elif atom[0] == "any":
                    parts.append(of(("any",)) if index == 0 else UNKNOWN)
                else:
                    parts.append(UNKNOWN)
            joined = join(parts)
            value = joined.with_deps(joined.deps | value.deps)
        return value

    def loop_elements(self, frame: Frame, number: int) -> list[Value] | None:
        """The elements of a loop one by one, or None when they are not all known."""
        iterable = self.eval(frame, frame.scope["loops"][number])
        if len(iterable.atoms) != 1:
            return None
        atom = next(iter(iterable.atoms))
        if atom[0] == "seq" and len(atom[1]) <= MAX_ELEMENTS:
            return [value.with_deps(value.deps | iterable.deps) for value in atom[1]]
        return None

    # -- expressions -----------------------------------------------------------------------------------------------

    def eval(self, frame: Frame, node: Node) -> Value:
        """The value of a node in a frame; its effects are noted once."""
        tag = node[0]
        if tag == "S":
            return text(node[1])
        if tag == "?":
            return UNKNOWN
        if tag == "N":
            return self.name(frame, node[1])
        if tag == "V":
            return self.variable(frame, node[1], node[2])
        pinned = bool(frame.overrides)
        if not pinned:
            known = frame.nodes.get(id(node))
            if known is not None:
                return known
        outer, self.lowest = self.lowest, NO_CYCLE
        value = EVALUATORS[tag](self, frame, node)
        if self.lowest == NO_CYCLE and not pinned:
            frame.nodes[id(node)] = value
        self.lowest = min(outer, self.lowest)
        return value
