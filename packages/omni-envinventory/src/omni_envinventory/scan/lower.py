"""One source file, reduced to the scopes, bindings and effects that the resolver evaluates.

A scope is a plain dict (see ``Scope``), so that a file's whole reduction is JSON and can be cached by digest. Only
functions that mention a word of interest, and constructors, are reduced; the rest keep their signature and are marked
``skipped``, and the resolver asks for them by name when a variable's name turns out to depend on them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any, TypedDict

from .lower_expr import UNKNOWN, ExpressionLowering, Node

CONSTRUCTORS = frozenset({"__init__", "__post_init__", "__new__"})
"""Methods that are always reduced: an instance's prefix is kept there, and nothing in them need mention the word."""

State = dict[str, frozenset[int] | None]


class Scope(TypedDict):
    """A module, class, function or lambda.

    ``bind`` maps a name to the nodes it was ever bound to, ``mut`` to what was added to the container it names,
    ``body`` holds the effects in order, ``ret`` what is returned, ``loops`` the iterables of its loops.
    """

    kind: str
    name: str
    qual: str
    line: int
    col: int
    parent: int
    params: list[list[Any]]
    positional: int
    vararg: str | None
    kwarg: str | None
    bind: dict[str, list[Node]]
    mut: dict[str, list[Node]]
    body: list[Node]
    ret: list[Node]
    yields: list[Node]
    loops: list[Node]
    deco: list[Node]
    bases: list[Node]
    ann: dict[str, list[Any]]
    selfattr: dict[str, list[Node]]
    stars: list[Node]
    skipped: bool
    idle: bool


def _scope(kind: str, name: str, qual: str, line: int, col: int, parent: int) -> Scope:
    return Scope(
        kind=kind,
        name=name,
        qual=qual,
        line=line,
        col=col,
        parent=parent,
        params=[],
        positional=0,
        vararg=None,
        kwarg=None,
        bind={},
        mut={},
        body=[],
        ret=[],
        yields=[],
        loops=[],
        deco=[],
        bases=[],
        ann={},
        selfattr={},
        stars=[],
        skipped=False,
        idle=False,
    )


class Lowering(ExpressionLowering):
    """Reduces one module; ``scopes[0]`` is the module itself.

    Args:
        tree: The parsed module.
        interest_lines: Lines that mention a word of interest; a longer function without any is skipped.
        rebound: Names that some function declares ``global`` or ``nonlocal``: no binding order holds for them.
    """

    def __init__(self, tree: ast.Module, interest_lines: Sequence[int], rebound: frozenset[str]) -> None:
        self.scopes: list[Scope] = []
        self.lines = sorted(interest_lines)
        self.rebound = rebound
        self.current = -1
        self.state: State = {}
        self.renames: list[dict[str, str]] = []
        self.loops: dict[str, int] = {}
        self.declared: dict[str, int] = {}
        self.self_name: str | None = None
        self.unordered_names: list[set[str]] = []
        self.scopes.append(_scope("module", "<module>", "<module>", 1, 0, -1))
        self.current = 0
        self.block(tree.body)

    # -- names -----------------------------------------------------------------------------------------------------

    def load(self, name: str) -> Node:
        """The bindings of a local name that reach this place, or any binding of it."""
        reaching = self.state.get(name)
        if reaching is None or name in self.rebound:
            return ["N", name]
        return ["V", name, sorted(reaching)]

    def bind(self, target: ast.expr, node: Node, path: tuple[int, ...] = ()) -> None:
        """Bind a name, an unpacked tuple, an attribute or a subscript."""
        scope = self.scopes[self.current]
        if isinstance(target, ast.Name):
            self.bind_name(target.id, ["P", node, list(path)] if path else node)
        elif isinstance(target, ast.Tuple | ast.List):
            for index, element in enumerate(target.elts):
                starred = isinstance(element, ast.Starred)
                self.bind(
                    element.value if isinstance(element, ast.Starred) else element,
                    node,
                    (*path, -1 if starred else index),
                )
        elif isinstance(target, ast.Attribute):
            value = ["P", node, list(path)] if path else node
            base = target.value
            if isinstance(base, ast.Name) and base.id == self.self_name:
                scope["selfattr"].setdefault(target.attr, []).append(value)
            scope["body"].append(["=A", self.expr(base), target.attr, value, target.lineno, target.col_offset])
        elif isinstance(target, ast.Subscript):
            value = ["P", node, list(path)] if path else node
            key = self.expr(target.slice)
            if isinstance(target.value, ast.Name):
                scope["mut"].setdefault(target.value.id, []).append(["item", key, value])
            store = ["=S", self.expr(target.value), key, value, target.lineno, target.col_offset]
            scope["body"].append(self.correlate(store, target))

    def bind_name(self, name: str, node: Node) -> None:
        """Add a binding of a plain name in the scope that owns it."""
        for renamed in reversed(self.renames):
            if name in renamed:
                name = renamed[name]
                break
        owner = self.declared.get(name, self.current)
        bindings = self.scopes[owner]["bind"].setdefault(name, [])
        bindings.append(node)
        if owner == self.current:
            self.state[name] = None if self.unordered(name) else frozenset({len(bindings) - 1})

    def unordered(self, name: str) -> bool:
        """Whether a loop or ``try`` around this place makes binding order meaningless for the name."""
        return any(name in names for names in self.unordered_names)

    def loop(self, target: ast.expr, iterable: Node) -> None:
        """Bind a target to each element of an iterable."""
        scope = self.scopes[self.current]
        number = len(scope["loops"])
        scope["loops"].append(iterable)
        scope["body"].append(["ITER", number, target.lineno, target.col_offset])
        self.element(target, number, ())

    def element(self, target: ast.expr, number: int, path: tuple[int, ...]) -> None:
        """Bind the parts of a loop's target and remember which loop each name varies with."""
        if isinstance(target, ast.Name):
            self.bind_name(target.id, ["E", number, list(path)])
            spelled = target.id
            for renamed in reversed(self.renames):
                if spelled in renamed:
                    spelled = renamed[spelled]
                    break
            self.loops[spelled] = number
        elif isinstance(target, ast.Tuple | ast.List):
            for index, element in enumerate(target.elts):
                starred = isinstance(element, ast.Starred)
                self.element(
                    element.value if isinstance(element, ast.Starred) else element,
                    number,
                    (*path, -1 if starred else index),
                )
        else:
            self.bind(target, ["E", number, list(path)])

    # -- scopes ----------------------------------------------------------------------------------------------------

    def relevant(self, first: int, last: int) -> bool:
        """Whether any of these lines mentions a word of interest."""
        low, high = 0, len(self.lines)
        while low < high:
            middle = (low + high) // 2
            if self.lines[middle] < first:
                low = middle + 1
            else:
                high = middle
        return low < len(self.lines) and self.lines[low] <= last

    def open(self, scope: Scope) -> tuple[int, tuple[Any, ...]]:
        """Enter a scope; gives its index and what ``close`` needs."""
        saved = (
            self.current,
            self.state,
            self.loops,
            self.declared,
            self.self_name,
            self.unordered_names,
            self.renames,
        )
        self.scopes.append(scope)
        self.current = len(self.scopes) - 1
        self.state, self.loops, self.declared, self.unordered_names = {}, {}, {}, []
        self.renames = list(self.renames)
        return self.current, saved

    def close(self, saved: tuple[Any, ...]) -> None:
        """Leave a scope."""
        self.current, self.state, self.loops, self.declared, self.self_name, self.unordered_names, self.renames = saved

    def qualified(self, name: str) -> str:
        """The dotted name of something defined here."""
        outer = self.scopes[self.current]
        return name if outer["kind"] == "module" else f"{outer['qual']}.{name}"

    def signature(self, scope: Scope, arguments: ast.arguments) -> None:
        """Parameters with their defaults and annotations, evaluated in the defining scope."""
        positional = [*arguments.posonlyargs, *arguments.args]
        defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
        defaults += arguments.defaults
        for parameter, default in [*zip(positional, defaults), *zip(arguments.kwonlyargs, arguments.kw_defaults)]:
            annotation = self.annotation(parameter.annotation)
            scope["params"].append([parameter.arg, None if default is None else self.expr(default), annotation])
        scope["positional"] = len(positional)
        scope["vararg"] = arguments.vararg.arg if arguments.vararg else None
        scope["kwarg"] = arguments.kwarg.arg if arguments.kwarg else None

    def annotation(self, node: ast.expr | None) -> Node | None:
        """An annotation, unquoted where it is text."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return None
        return None if node is None else self.expr(node)

    def function(self, node: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
        """Reduce a function or lambda and give its index."""
        name = "<lambda>" if isinstance(node, ast.Lambda) else node.name
        kind = "lambda" if isinstance(node, ast.Lambda) else "function"
        scope = _scope(kind, name, self.qualified(name), node.lineno, node.col_offset, self.current)
        self.signature(scope, node.args)
        first = node.lineno
        if not isinstance(node, ast.Lambda):
            scope["deco"] = [self.expr(decorator) for decorator in node.decorator_list]
            first = min([first, *(decorator.lineno for decorator in node.decorator_list)])
        last = node.end_lineno or first
        scope["idle"] = not self.relevant(first, last)
        if scope["idle"] and name not in CONSTRUCTORS and not isinstance(node, ast.Lambda):
            scope["skipped"] = True
            self.scopes.append(scope)
            return len(self.scopes) - 1
        in_class = self.scopes[self.current]["kind"] == "class"
        index, saved = self.open(scope)
        self.self_name = scope["params"][0][0] if in_class and scope["params"] else (saved[4] if not in_class else None)
        for parameter in scope["params"]:
            self.state[parameter[0]] = frozenset({-1})
        for extra in (scope["vararg"], scope["kwarg"]):
            if extra:
                self.state[extra] = frozenset({-1})
        if isinstance(node, ast.Lambda):
            result = self.expr(node.body)
            self.effect(result)
            scope["ret"].append(result)
        else:
            self.block(node.body)
        self.close(saved)
        return index

    def block(self, statements: Iterable[ast.stmt]) -> None:
        """Reduce statements in order."""
        from .lower_stmt import lower_statement

        for statement in statements:
            lower_statement(self, statement)

    def effect(self, node: Node) -> None:
        """Add an effect, unless nothing can come of it."""
        if node[0] not in ("?", "S", "C", "N", "V"):
            self.scopes[self.current]["body"].append(node)

    def give(self, node: Node) -> None:
        """Note a value that the current generator yields; evaluating it is an effect too."""
        self.scopes[self.current]["yields"].append(node)
        self.effect(node)

    def unknown(self, name: str) -> None:
        """A binding of which nothing is known."""
        self.bind_name(name, UNKNOWN)
