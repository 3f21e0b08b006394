"""Expressions of Python, reduced to what can carry a variable's name or the environment itself.

The reduced form is made of lists and strings so that it can be cached as JSON. A node is ``[tag, ...]``:

=====  ===============================================================================================
tag    rest
=====  ===============================================================================================
S      text (str or ASCII bytes; bytes name the same variables)
C      another constant (int, float, bool, None)
N      name, as any binding of it may have left it
V      name, indices of the bindings that reach this place
A      base, attribute, line, column
K      function, positional arguments, keyword pairs (name or None for ``**``), line, column
J      parts to join as text
U      alternatives (conditional expression, ``or``, ``and``)
T      elements of a tuple, list or set literal (``*`` wraps a spread element)
D      pairs of a dict literal (None as key for ``**``), line, column
I      base, index, line, column: a subscript that is read
L      index of the function scope of a lambda
Q      element of a comprehension
M      key element, value element of a dict comprehension
O      loop number, expression: evaluate it once per element of that loop
B      operator, left, right, line, column
H      container, key, line, column: a membership test
X      children whose own value does not matter
?      nothing known
=====  ===============================================================================================
"""

from __future__ import annotations

import ast
from typing import Any

Node = list[Any]
UNKNOWN: Node = ["?"]


class ExpressionLowering:
    """Lowers expressions; the statement part supplies names, loops and scopes."""

    renames: list[dict[str, str]]
    loops: dict[str, int]

    def load(self, name: str) -> Node:
        """The node of a name that is read here."""
        raise NotImplementedError

    def function(self, node: ast.Lambda) -> int:
        """Open a scope for a lambda and give its index."""
        raise NotImplementedError

    def bind(self, target: ast.expr, node: Node) -> None:
        """Bind a target in the current scope."""
        raise NotImplementedError

    def give(self, node: Node) -> None:
        """Note a value that the current generator yields."""
        raise NotImplementedError

    def loop(self, target: ast.expr, iterable: Node) -> None:
        """Bind a target to the elements of an iterable."""
        raise NotImplementedError

    def expr(self, node: ast.expr | None) -> Node:
        """Lower one expression."""
        if node is None:
            return UNKNOWN
        method = _DISPATCH.get(type(node))
        if method is not None:
            result: Node = method(self, node)
            return result
        return self.children(node)

    def children(self, node: ast.AST) -> Node:
        """A node whose own value is unknown but whose parts may still touch the environment."""
        found = [self.expr(child) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        found = [child for child in found if child[0] not in ("?", "S", "C", "N", "V")]
        return ["X", found] if found else UNKNOWN

    def constant(self, node: ast.Constant) -> Node:
        """Text, ASCII bytes and the other constants."""
        value = node.value
        if isinstance(value, str):
            return ["S", value]
        if isinstance(value, bytes):
            return ["S", value.decode("utf-8", "surrogateescape")]
        if value is None or isinstance(value, bool | int | float):
            return ["C", value]
        return UNKNOWN

    def name(self, node: ast.Name) -> Node:
        """A name, renamed where a comprehension owns it."""
        for scope in reversed(self.renames):
            if node.id in scope:
                return ["N", scope[node.id]]
        return self.load(node.id)

    def attribute(self, node: ast.Attribute) -> Node:
        """``base.attribute``."""
        return ["A", self.expr(node.value), node.attr, node.lineno, node.col_offset]

    def call(self, node: ast.Call) -> Node:
        """A call with its arguments; spreads keep their mark."""
        arguments = [
            ["*", self.expr(argument.value)] if isinstance(argument, ast.Starred) else self.expr(argument)
            for argument in node.args
        ]
        keywords = [[keyword.arg, self.expr(keyword.value)] for keyword in node.keywords]
        return self.correlate(["K", self.expr(node.func), arguments, keywords, node.lineno, node.col_offset], node)

    def subscript(self, node: ast.Subscript) -> Node:
        """``base[index]`` that is read."""
        lowered = ["I", self.expr(node.value), self.expr(node.slice), node.lineno, node.col_offset]
        return self.correlate(lowered, node)

    def joined(self, node: ast.JoinedStr) -> Node:
        """An f-string; a format specification or conversion makes its part unknown text."""
        parts: list[Node] = []
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                plain = value.format_spec is None and value.conversion in (-1, 115)
                inner = self.expr(value.value)
                parts.append(inner if plain else ["X", [inner]])
            else:
                parts.append(self.expr(value))
        return self.correlate(["J", parts], node)

    def binary(self, node: ast.BinOp) -> Node:
        """``+``, ``%``, ``|``; every other operator yields nothing that names a variable."""
        if isinstance(node.op, ast.Add):
            lowered: Node = ["B", "+", self.expr(node.left), self.expr(node.right), node.lineno, node.col_offset]
        elif isinstance(node.op, ast.Mod):
            lowered = ["B", "%", self.expr(node.left), self.expr(node.right), node.lineno, node.col_offset]
        elif isinstance(node.op, ast.BitOr):
            lowered = ["B", "|", self.expr(node.left), self.expr(node.right), node.lineno, node.col_offset]
        else:
            return self.children(node)
        return self.correlate(lowered, node)

    def alternatives(self, node: ast.IfExp) -> Node:
        """Both outcomes of a conditional expression."""
        return ["U", [self.expr(node.body), self.expr(node.orelse), ["X", [self.expr(node.test)]]]]

    def boolean(self, node: ast.BoolOp) -> Node:
        """Every operand may be the value."""
        return ["U", [self.expr(value) for value in node.values]]

    def compare(self, node: ast.Compare) -> Node:
        """Membership tests; other comparisons only evaluate their operands."""
        effects: list[Node] = []
        left = node.left
        for operator, right in zip(node.ops, node.comparators):
            if isinstance(operator, ast.In | ast.NotIn):
                lowered = ["H", self.expr(right), self.expr(left), node.lineno, node.col_offset]
                effects.append(self.correlate(lowered, node))
            else:
                effects += [self.expr(left), self.expr(right)]
            left = right
        return ["X", [effect for effect in effects if effect[0] not in ("?", "S", "C")]]

    def sequence(self, node: ast.Tuple | ast.List | ast.Set) -> Node:
        """A literal sequence."""
        return [
            "T",
            [
                ["*", self.expr(element.value)] if isinstance(element, ast.Starred) else self.expr(element)
                for element in node.elts
            ],
        ]

    def dictionary(self, node: ast.Dict) -> Node:
        """A literal dict."""
        pairs = [
            [None if key is None else self.expr(key), self.expr(value)] for key, value in zip(node.keys, node.values)
        ]
        return ["D", pairs, node.lineno, node.col_offset]

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Node:
        """A comprehension: its targets are names of this scope that nobody else can spell."""
        names: dict[str, str] = {}
        effects: list[Node] = []
        first = self.expr(node.generators[0].iter)
        self.renames.append(names)
        for position, generator in enumerate(node.generators):
            iterable = self.expr(generator.iter) if position else first
            for target in ast.walk(generator.target):
                if isinstance(target, ast.Name):
                    names[target.id] = f"{target.id}#{node.lineno}.{node.col_offset}"
            self.loop(generator.target, iterable)
            effects += [self.expr(condition) for condition in generator.ifs]
        if isinstance(node, ast.DictComp):
            result: Node = ["M", self.expr(node.key), self.expr(node.value)]
        else:
            result = ["Q", self.expr(node.elt)]
        self.renames.pop()
        effects = [effect for effect in effects if effect[0] not in ("?", "S", "C", "N", "V")]
        return ["U", [result, ["X", effects]]] if effects else result

    def lambda_(self, node: ast.Lambda) -> Node:
        """A function without a name."""
        return ["L", self.function(node)]

    def walrus(self, node: ast.NamedExpr) -> Node:
        """``name := value`` binds and is the value."""
        value = self.expr(node.value)
        self.bind(node.target, value)
        return value

    def inner(self, node: ast.Await | ast.Starred | ast.YieldFrom) -> Node:
        """Wrappers that hand their operand through."""
        return self.expr(node.value)

    def yielded(self, node: ast.Yield) -> Node:
        """What a generator gives out; what is sent back in is unknown."""
        if node.value is not None:
            self.give(self.expr(node.value))
        return UNKNOWN

    def correlate(self, lowered: Node, node: ast.expr) -> Node:
        """Wrap an expression that uses a loop's elements more than once, so that they vary together."""
        if not self.loops:
            return lowered
        counts: dict[int, int] = {}
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load):
                spelled = inner.id
                for scope in reversed(self.renames):
                    if spelled in scope:
                        spelled = scope[spelled]
                        break
                number = self.loops.get(spelled)
                if number is not None:
                    counts[number] = counts.get(number, 0) + 1
        for number, count in counts.items():
            if count > 1:
                lowered = ["O", number, lowered]
        return lowered


_DISPATCH: dict[type[ast.expr], Any] = {
    ast.Constant: ExpressionLowering.constant,
    ast.Name: ExpressionLowering.name,
    ast.Attribute: ExpressionLowering.attribute,
    ast.Call: ExpressionLowering.call,
    ast.Subscript: ExpressionLowering.subscript,
    ast.JoinedStr: ExpressionLowering.joined,
    ast.BinOp: ExpressionLowering.binary,
    ast.IfExp: ExpressionLowering.alternatives,
    ast.BoolOp: ExpressionLowering.boolean,
    ast.Compare: ExpressionLowering.compare,
    ast.Tuple: ExpressionLowering.sequence,
    ast.List: ExpressionLowering.sequence,
    ast.Set: ExpressionLowering.sequence,
    ast.Dict: ExpressionLowering.dictionary,
    ast.ListComp: ExpressionLowering.comprehension,
    ast.SetComp: ExpressionLowering.comprehension,
    ast.GeneratorExp: ExpressionLowering.comprehension,
    ast.DictComp: ExpressionLowering.comprehension,
    ast.Lambda: ExpressionLowering.lambda_,
    ast.NamedExpr: ExpressionLowering.walrus,
    ast.Await: ExpressionLowering.inner,
    ast.Starred: ExpressionLowering.inner,
    ast.Yield: ExpressionLowering.yielded,
    ast.YieldFrom: ExpressionLowering.inner,
}
