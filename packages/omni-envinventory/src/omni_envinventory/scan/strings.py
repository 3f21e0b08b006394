"""Text operations on sets of possible texts: ``%``, ``format``, ``join`` and the usual methods."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from typing import Any

from .values import MAX_ATOMS, NOTHING, UNKNOWN, WILD, Value, concatenate, join, squeeze, text, texts

_PERCENT = re.compile(r"%(?:\((?P<key>[^)]*)\))?(?P<flags>[#0\- +]*)(?P<width>\d*)(?:\.\d+)?(?P<kind>[a-zA-Z%])")

TEXT_METHODS = frozenset(
    (
        *("upper", "lower", "title", "capitalize", "swapcase", "casefold", "encode", "decode", "__str__", "format"),
        *("join", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "replace"),
    )
)
"""Methods whose result still is the text that a caller gave."""

_PLAIN: dict[str, Callable[[str], str]] = {
    "upper": str.upper,
    "lower": str.lower,
    "title": str.title,
    "capitalize": str.capitalize,
    "swapcase": str.swapcase,
    "casefold": str.casefold,
    "encode": str,
    "decode": str,
    "__str__": str,
}


def percent(template: Value, argument: Value) -> Value:
    """``template % argument`` for a tuple, a dict or one value."""
    positional: list[Value] = [argument.with_deps(frozenset())]
    named: dict[str, Value] = {}
    for atom in argument.atoms:
        if atom[0] == "seq" and atom[2]:
            positional = list(atom[1])
        elif atom[0] == "dict":
            for key, value in atom[1]:
                for name in texts(key):
                    named[name] = value
    results: list[Value] = []
    for content in texts(template):
        if content == WILD:
            results.append(text(WILD))
            continue
        parts: list[Value] = []
        position = last = 0
        for found in _PERCENT.finditer(content):
            parts.append(text(content[last : found.start()]))
            last = found.end()
            if found["kind"] == "%":
                parts.append(text("%"))
            elif found["kind"] not in "sd" or found["flags"] or found["width"]:
                parts.append(text(WILD))
                position += found["key"] is None
            elif found["key"] is not None:
                parts.append(named.get(found["key"], text(WILD)))
            else:
                parts.append(positional[position] if position < len(positional) else text(WILD))
                position += 1
        parts.append(text(content[last:]))
        results.append(concatenate(parts))
    merged = join(results)
    return merged.with_deps(merged.deps | template.deps | argument.deps)


def format_text(template: str, positional: Sequence[Value], named: dict[str, Value]) -> Value:
    """``template.format(...)``; parts with a format specification or a conversion are unknown."""
    parts: list[Value] = []
    automatic = 0
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError:
        return text(WILD)
    for literal, field, specification, conversion in pieces:
        parts.append(text(literal))
        if field is None:
            continue
        value: Value | None = None
        if field == "":
            value = positional[automatic] if automatic < len(positional) else None
            automatic += 1
        elif field.isdigit():
            value = positional[int(field)] if int(field) < len(positional) else None
        else:
            value = named.get(field)
        parts.append(value if value is not None and not specification and conversion in (None, "s") else text(WILD))
    return concatenate(parts)


def method(content: str, name: str, arguments: Sequence[Value], named: dict[str, Value]) -> Value:
    """The result of a text method on one possible text."""
    deps = frozenset(dep for value in arguments for dep in value.deps)
    if name in _PLAIN:
        return text(_PLAIN[name](content))
    if name == "format":
        return format_text(content, arguments, named)
    if name == "join" and len(arguments) == 1:
        return _joined(content, arguments[0])
    if name == "format_map" and len(arguments) == 1:
        return Value(text(WILD).atoms, deps)
    if name in ("startswith", "endswith", "isupper", "find", "count", "index"):
        return Value(UNKNOWN.atoms, deps)
    if name in ("split", "rsplit", "splitlines", "partition", "rpartition"):
        return _pieces(content, name, arguments, deps)
    choices = [texts(value) for value in arguments]
    if WILD in content or any(WILD in entry for entries in choices for entry in entries):
        return Value(text(WILD).atoms, deps)
    results: list[Value] = []
    if name in ("strip", "lstrip", "rstrip") and len(arguments) <= 1:
        strip: Callable[..., str] = getattr(content, name)
        results = [text(strip(entry)) for entry in choices[0]] if choices else [text(strip())]
    elif name in ("removeprefix", "removesuffix") and len(arguments) == 1:
        remove: Callable[[str], str] = getattr(content, name)
        results = [text(remove(entry)) for entry in choices[0]]
    elif name == "replace" and len(arguments) >= 2:
        results = [text(content.replace(old, new)) for old in choices[0] for new in choices[1]][:MAX_ATOMS]
    if not results:
        return Value(text(WILD).atoms, deps)
    merged = join(results)
    return merged.with_deps(deps)


def _pieces(content: str, name: str, arguments: Sequence[Value], deps: frozenset[Any]) -> Value:
    """A text cut into pieces; only a plain separator is followed."""
    separators = texts(arguments[0]) if arguments else [None]
    atom = next(iter(arguments[0].atoms), ("?",)) if arguments else ("s", " ")
    if WILD in content or len(separators) != 1 or len(arguments) > 1 or atom[0] != "s" or separators[0] in ("", WILD):
        return Value(frozenset({("seq", (text(WILD),), False)}), deps)
    if name in ("partition", "rpartition") and not arguments:
        return Value(UNKNOWN.atoms, deps)
    cut: Callable[..., Sequence[str]] = getattr(content, name)
    pieces = cut() if name == "splitlines" or separators[0] is None else cut(separators[0])
    return Value(frozenset({("seq", tuple(text(piece) for piece in pieces), True)}), deps)


def _joined(separator: str, argument: Value) -> Value:
    """``separator.join(argument)`` for sequences of known length."""
    results: list[Value] = []
    for atom in argument.atoms:
        if atom[0] == "seq" and atom[2]:
            parts: list[Value] = []
            for index, element in enumerate(atom[1]):
                parts += [text(separator), element] if index else [element]
            results.append(concatenate(parts) if parts else text(""))
        else:
            results.append(text(WILD))
    merged = join(results) if results else NOTHING
    return Value(frozenset(("s", squeeze(atom[1])) for atom in merged.atoms), merged.deps | argument.deps)
