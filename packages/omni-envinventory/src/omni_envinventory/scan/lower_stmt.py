"""Statements: bindings in the order they reach a place, and effects."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from .lower import Lowering, State, _scope
from .lower_expr import Node


def lower_statement(low: Lowering, node: ast.stmt) -> None:
    """Reduce one statement into the current scope."""
    handler = _HANDLERS.get(type(node))
    if handler is not None:
        handler(low, node)


def _assigned(nodes: Sequence[ast.AST]) -> set[str]:
    """Names that these statements bind, those of nested scopes included (harmless, and cheap to find)."""
    found: set[str] = set()
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and not isinstance(inner.ctx, ast.Load):
                found.add(inner.id)
            elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(inner.name)
            elif isinstance(inner, ast.Import | ast.ImportFrom):
                found.update((alias.asname or alias.name.partition(".")[0]) for alias in inner.names)
            elif isinstance(inner, ast.ExceptHandler) and inner.name:
                found.add(inner.name)
    return found


def _unordered(low: Lowering, names: set[str], bodies: Sequence[Sequence[ast.stmt]]) -> None:
    """Reduce bodies whose bindings may run in any order or number."""
    for name in names:
        low.state[name] = None
    low.unordered_names.append(names)
    for body in bodies:
        low.block(body)
    low.unordered_names.pop()
    for name in names:
        low.state[name] = None


def _leaves(body: Sequence[ast.stmt]) -> bool:
    """Whether control never falls out of the end of this block."""
    return bool(body) and isinstance(body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _merge(states: list[State]) -> State:
    """What may reach a place from several branches."""
    if not states:
        return {}
    merged: State = {}
    for name in {name for state in states for name in state}:
        reaching: frozenset[int] | None = frozenset()
        for state in states:
            one = state.get(name)
            reaching = None if one is None or reaching is None else reaching | one
        merged[name] = reaching
    return merged


def _branches(low: Lowering, bodies: Sequence[Sequence[ast.stmt]]) -> None:
    before = low.state
    after: list[State] = []
    for body in bodies:
        low.state = dict(before)
        low.block(body)
        if not _leaves(body):
            after.append(low.state)
    low.state = _merge(after) if after else dict(before)


def _function(low: Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    index = low.function(node)
    low.bind_name(node.name, ["FN", index])
    low.scopes[low.current]["body"].append(["DEF", index])


def _class(low: Lowering, node: ast.ClassDef) -> None:
    scope = _scope("class", node.name, low.qualified(node.name), node.lineno, node.col_offset, low.current)
    scope["bases"] = [low.expr(base) for base in node.bases]
    scope["deco"] = [low.expr(decorator) for decorator in node.decorator_list]
    options: list[Node] = [[keyword.arg, low.expr(keyword.value)] for keyword in node.keywords]
    index, saved = low.open(scope)
    low.self_name = None
    for name, value in options:
        if name:
            scope["bind"].setdefault(f"#{name}", []).append(value)
    low.block(node.body)
    low.close(saved)
    low.bind_name(node.name, ["CL", index])
    low.scopes[low.current]["body"].append(["CLS", index])


def _assign(low: Lowering, node: ast.Assign) -> None:
    value = low.expr(node.value)
    low.effect(value)
    for target in node.targets:
        low.bind(target, value)


def _annotated(low: Lowering, node: ast.AnnAssign) -> None:
    scope = low.scopes[low.current]
    if isinstance(node.target, ast.Name):
        annotation = low.annotation(node.annotation)
        if annotation is not None:
            scope["ann"][node.target.id] = [annotation, node.lineno, node.col_offset]
    if node.value is not None:
        value = low.expr(node.value)
        low.effect(value)
        low.bind(node.target, value)


def _augmented(low: Lowering, node: ast.AugAssign) -> None:
    value = low.expr(node.value)
    if isinstance(node.target, ast.Name):
        current = low.name(ast.Name(id=node.target.id, ctx=ast.Load()))
        if isinstance(node.op, ast.BitOr):
            low.effect(["|=", current, value, node.lineno, node.col_offset])
            low.scopes[low.current]["mut"].setdefault(node.target.id, []).append(["upd", value])
        elif isinstance(node.op, ast.Add):
            low.effect(value)
            low.bind(node.target, ["B", "+", current, value, node.lineno, node.col_offset])
        else:
            low.effect(value)
            low.unknown(node.target.id)
    elif isinstance(node.target, ast.Attribute):
        base = low.expr(node.target)
        low.effect(["|=", base, value, node.lineno, node.col_offset] if isinstance(node.op, ast.BitOr) else value)
    elif isinstance(node.target, ast.Subscript):
        base, key = low.expr(node.target.value), low.expr(node.target.slice)
        low.effect(["I", base, key, node.lineno, node.col_offset])
        low.effect(["=S", base, key, value, node.lineno, node.col_offset])


def _delete(low: Lowering, node: ast.Delete) -> None:
    for target in node.targets:
        if isinstance(target, ast.Subscript):
            lowered = ["=D", low.expr(target.value), low.expr(target.slice), target.lineno, target.col_offset]
            low.effect(low.correlate(lowered, target))


def _expression(low: Lowering, node: ast.Expr) -> None:
    value = node.value
    if isinstance(value, ast.Constant):
        return  # a docstring or an ellipsis
    lowered = low.expr(value)
    low.effect(lowered)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Name):
        _mutation(low, value.func.value.id, value.func.attr, value)


def _mutation(low: Lowering, name: str, method: str, call: ast.Call) -> None:
    """``name.append(x)`` and its kin add to whatever container the name holds."""
    kinds = {"append": "elt", "add": "elt", "insert": "elt", "extend": "ext", "update": "upd", "setdefault": "item"}
    kind = kinds.get(method)
    if kind is None:
        return
    added = low.scopes[low.current]["mut"].setdefault(name, [])
    if kind == "item" and len(call.args) == 2:
        added.append(["item", low.expr(call.args[0]), low.expr(call.args[1])])
    elif kind in ("elt", "ext", "upd") and call.args:
        added.append([kind, low.expr(call.args[-1])])
    if kind == "upd":
        added.extend(["item", ["S", keyword.arg], low.expr(keyword.value)] for keyword in call.keywords if keyword.arg)


def _return(low: Lowering, node: ast.Return) -> None:
    if node.value is not None:
        value = low.expr(node.value)
        low.effect(value)
        low.scopes[low.current]["ret"].append(value)


def _for(low: Lowering, node: ast.For | ast.AsyncFor) -> None:
    iterable = low.expr(node.iter)
    names = _assigned(node.body)
    targets = _assigned([node.target]) - names
    held, before = dict(low.loops), dict(low.state)
    low.loop(node.target, iterable)
    for name in names:
        low.state[name] = None
    # Within the body the target is this loop's element, whatever else binds the name elsewhere.
    for name in targets:
        low.state[name] = frozenset({len(low.scopes[low.current]["bind"][name]) - 1})
    low.unordered_names.append(names)
    low.block(node.body)
    low.unordered_names.pop()
    low.loops = held
    inside = {name: low.state.get(name) for name in targets}
    for name in names | targets:
        earlier, own = before.get(name), inside.get(name)
        ordered = name in targets and own is not None and not low.unordered(name)
        low.state[name] = own | earlier if ordered and own is not None and earlier is not None else None
    low.block(node.orelse)


def _while(low: Lowering, node: ast.While) -> None:
    names = _assigned([node])
    for name in names:
        low.state[name] = None
    low.effect(low.expr(node.test))
    _unordered(low, names, [node.body])
    low.block(node.orelse)


def _is_main_guard(test: ast.expr) -> bool:
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and any(isinstance(right, ast.Constant) and right.value == "__main__" for right in test.comparators)
    )


def _if(low: Lowering, node: ast.If) -> None:
    low.effect(low.expr(node.test))
    if _is_main_guard(node.test):
        scope = low.scopes[low.current]
        kept, scope["body"] = scope["body"], []
        low.block(node.body)
        guarded, scope["body"] = scope["body"], kept
        scope["body"].append(["MAIN", guarded])
        low.block(node.orelse)
        return
    _branches(low, [node.body, node.orelse])


def _try(low: Lowering, node: ast.Try) -> None:
    names = _assigned([node])
    for handler in node.handlers:
        if handler.name:
            low.unknown(handler.name)
    bodies = [node.body, *(handler.body for handler in node.handlers), node.orelse, node.finalbody]
    _unordered(low, names, bodies)


def _with(low: Lowering, node: ast.With | ast.AsyncWith) -> None:
    for item in node.items:
        value = low.expr(item.context_expr)
        low.effect(value)
        if item.optional_vars is not None:
            low.bind(item.optional_vars, ["CM", value])
    low.block(node.body)


def _import(low: Lowering, node: ast.Import) -> None:
    for alias in node.names:
        if alias.asname:
            low.bind_name(alias.asname, ["IM", alias.name, None, 0])
        else:
            low.bind_name(alias.name.partition(".")[0], ["IM", alias.name.partition(".")[0], None, 0])


def _import_from(low: Lowering, node: ast.ImportFrom) -> None:
    for alias in node.names:
        if alias.name == "*":
            low.scopes[low.current]["stars"].append([node.module or "", node.level])
        else:
            low.bind_name(alias.asname or alias.name, ["IM", node.module or "", alias.name, node.level])


def _declare(low: Lowering, node: ast.Global | ast.Nonlocal) -> None:
    for name in node.names:
        owner = 0
        if isinstance(node, ast.Nonlocal):
            owner = low.scopes[low.current]["parent"]
            while owner > 0 and name not in low.scopes[owner]["bind"] and low.scopes[owner]["kind"] != "module":
                owner = low.scopes[owner]["parent"]
        low.declared[name] = owner


def _match(low: Lowering, node: ast.Match) -> None:
    subject = low.expr(node.subject)
    low.effect(subject)
    for case in node.cases:
        pattern = case.pattern
        if isinstance(pattern, ast.MatchMapping):
            for key in pattern.keys:
                low.effect(["I", subject, low.expr(key), key.lineno, key.col_offset])
            if pattern.rest:
                low.effect(["ALL", subject, pattern.lineno, pattern.col_offset])
        for inner in ast.walk(pattern):
            if isinstance(inner, ast.MatchAs | ast.MatchStar) and inner.name:
                low.unknown(inner.name)
        if case.guard is not None:
            low.effect(low.expr(case.guard))
    _branches(low, [*(case.body for case in node.cases), []])


def _assert(low: Lowering, node: ast.Assert) -> None:
    low.effect(low.expr(node.test))
    if node.msg is not None:
        low.effect(low.expr(node.msg))


def _raise(low: Lowering, node: ast.Raise) -> None:
    low.effect(low.expr(node.exc))
    low.effect(low.expr(node.cause))


_HANDLERS: dict[type[ast.stmt], Any] = {
    ast.FunctionDef: _function,
    ast.AsyncFunctionDef: _function,
    ast.ClassDef: _class,
    ast.Assign: _assign,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Delete: _delete,
    ast.Expr: _expression,
    ast.Return: _return,
    ast.For: _for,
    ast.AsyncFor: _for,
    ast.While: _while,
    ast.If: _if,
    ast.Try: _try,
    ast.TryStar: _try,
    ast.With: _with,
    ast.AsyncWith: _with,
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Global: _declare,
    ast.Nonlocal: _declare,
    ast.Match: _match,
    ast.Assert: _assert,
    ast.Raise: _raise,
}
