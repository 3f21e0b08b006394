"""The environment itself: its functions, its mapping, and what each use of them means."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .frames import Frame, Raw, Spot
from .values import UNKNOWN, WILD, Atom, Value, join, of, text

if TYPE_CHECKING:
    from .evaluate import Evaluator

FUNCTIONS = {
    "os.getenv": "getenv",
    "os.getenvb": "getenv",
    "os.putenv": "putenv",
    "os.unsetenv": "unsetenv",
    "posix.putenv": "putenv",
    "posix.unsetenv": "unsetenv",
    "os.path.expandvars": "expandvars",
    "posixpath.expandvars": "expandvars",
    "ntpath.expandvars": "expandvars",
    "genericpath.expandvars": "expandvars",
}
MAPPINGS = {"os.environ": "environ", "os.environb": "environb", "posix.environ": "environb", "nt.environ": "environ"}
OWN_MODULES = frozenset(
    (
        *("os", "os.path", "posix", "nt", "posixpath", "ntpath", "genericpath", "functools", "copy", "enum", "re"),
        *("subprocess", "importlib", "itertools", "collections", "types", "typing", "string", "json", "logging"),
        *("warnings", "abc", "dataclasses", "contextlib", "threading", "argparse", "operator", "builtins", "sys", "io"),
        *("pathlib", "tempfile", "shutil", "shlex"),
    )
)
"""Modules whose meaning is built in, or that say nothing about names: calls are not followed into their source."""

METHODS = frozenset(
    {
        "get",
        "pop",
        "setdefault",
        "update",
        "copy",
        "keys",
        "values",
        "items",
        "clear",
        "popitem",
        "__getitem__",
        "__setitem__",
        "__delitem__",
        "__contains__",
        "__iter__",
        "__or__",
        "__ior__",
    }
)

BUILTINS = frozenset(
    {
        "dict",
        "list",
        "tuple",
        "set",
        "frozenset",
        "sorted",
        "reversed",
        "iter",
        "enumerate",
        "zip",
        "map",
        "filter",
        "str",
        "bytes",
        "getattr",
        "setattr",
        "hasattr",
        "vars",
        "__import__",
        "isinstance",
        "id",
        "type",
        "len",
        "range",
        "next",
        "super",
        "eval",
        "exec",
        "compile",
        "bool",
        "int",
        "float",
        "repr",
        "print",
        "any",
        "all",
        "max",
        "min",
        "callable",
        "hash",
        "format",
        "staticmethod",
        "classmethod",
        "property",
    }
)

_VARIABLE = re.compile(r"\$(?:\{([^}]*)\}|(\w+))")


def external(dotted: str) -> Value:
    """Something outside the scanned sources; the environment's own functions are recognised here."""
    if dotted in MAPPINGS:
        return of(("env", MAPPINGS[dotted]))
    if dotted in FUNCTIONS:
        return of(("sink", FUNCTIONS[dotted], dotted))
    return of(("ext", dotted))


def label(kind: str, method: str) -> str:
    """How a use of the mapping is called in the results."""
    base = {"environ": "os.environ", "environb": "os.environb", "copy": "copy of os.environ", "view": "os.environ"}[
        kind
    ]
    return f"{base}{method}"


def note(
    ev: Evaluator, frame: Frame, key: Value, operation: str, form: str, spot: Spot, via: Spot | None = None
) -> None:
    """Note one access for each name the key may be; unknown atoms make it dynamic."""
    needs = frozenset(dep for dep in key.deps if dep[0] != "?")
    requests = [dep for dep in key.deps if dep[0] == "?"]
    unknown = False
    reason = ""
    for atom in key.atoms:
        name: str | None
        if atom[0] == "s":
            if atom[1].strip(WILD) == "":
                unknown = True
                continue
            name = atom[1].replace("*", "?").replace(WILD, "*")
            if WILD in atom[1]:
                ev.wanted.update((dep[1], dep[2]) for dep in requests)
        elif atom[0] == "any":
            name, operation_of = "*", operation
            ev.add(frame, Raw(name, operation_of, form, spot, frozenset(), via, "each name found", frame.when))
            continue
        elif atom == ("c", None):
            continue  # a placeholder that a subclass or a later assignment replaces; None itself names nothing
        else:
            unknown = True
            if atom[0] == "ext":
                reason = f"value of {atom[1]}, which is not among the sources"
            continue
        ev.add(frame, Raw(name, operation, form, spot, needs, via, "", frame.when))
    if unknown:
        ev.wanted.update((dep[1], dep[2]) for dep in requests)
        detail = reason or "the name is computed"
        ev.add(frame, Raw(None, operation, form, spot, needs, via, detail, frame.when))


def bulk(ev: Evaluator, frame: Frame, form: str, spot: Spot, how: str) -> None:
    """Note a use of the whole environment."""
    ev.add(frame, Raw("*", "bulk", form, spot, frozenset(), None, how, frame.when))


def consumed(ev: Evaluator, frame: Frame, value: Value, form: str, spot: Spot) -> None:
    """Note that a value, if it is the environment, is used as a whole."""
    for atom in value.atoms:
        if atom[0] == "env" and atom[1] != "copy":
            bulk(ev, frame, form, spot, "read")


def union(ev: Evaluator, frame: Frame, left: Value, right: Value, spot: Spot) -> Value:
    """``left | right`` of mappings."""
    atoms: set[Atom] = set()
    for atom in (*left.atoms, *right.atoms):
        if atom[0] == "env":
            if atom[1] != "copy":
                bulk(ev, frame, "copy", spot, "read")
            atoms.add(("env", "copy"))
        elif atom[0] in ("dict", "seq"):
            atoms.add(atom)
    return Value(frozenset(atoms), left.deps | right.deps) if atoms else Value(UNKNOWN.atoms, left.deps | right.deps)


def function(
    ev: Evaluator, frame: Frame, atom: Atom, arguments: list[Value], named: dict[str, Value], spot: Spot
) -> Value:
    """A call of one of the environment's functions."""
    kind, form = atom[1], atom[2]
    if kind == "expandvars":
        expand(ev, frame, arguments[0] if arguments else named.get("path", UNKNOWN), spot)
        return UNKNOWN
    key = arguments[0] if arguments else named.get("key", named.get("name", UNKNOWN))
    operation = {"getenv": "read", "putenv": "write", "unsetenv": "delete"}[kind]
    note(ev, frame, key, operation, form, spot)
    default = arguments[1] if len(arguments) > 1 else named.get("default")
    return join([UNKNOWN, default]) if default is not None and kind == "getenv" else UNKNOWN


def expand(ev: Evaluator, frame: Frame, value: Value, spot: Spot) -> None:
    """``expandvars`` reads what its text names."""
    unknown: set[Atom] = set()
    names: set[Atom] = set()
    for atom in value.atoms:
        if atom[0] == "s":
            known = atom[1].replace(WILD, " " + WILD + " ")
            names.update(("s", braced or plain) for braced, plain in _VARIABLE.findall(known))
            if WILD in atom[1]:
                unknown.add(("?",))
        elif atom[0] != "c":
            unknown.add(atom)
    if names or unknown:
        note(ev, frame, Value(frozenset(names | unknown), value.deps), "read", "os.path.expandvars", spot)


def method(
    ev: Evaluator, frame: Frame, kind: str, name: str, arguments: list[Value], named: dict[str, Value], spot: Spot
) -> Value:
    """A call of one of the mapping's methods."""
    key = arguments[0] if arguments else named.get("key", UNKNOWN)
    form = label(kind, f".{name}")
    default = arguments[1] if len(arguments) > 1 else named.get("default")
    if name in ("get", "__getitem__"):
        note(ev, frame, key, "read", form, spot)
        return join([UNKNOWN, default]) if default is not None else UNKNOWN
    if name == "pop":
        note(ev, frame, key, "delete", form, spot)
        return UNKNOWN
    if name in ("setdefault", "__setitem__"):
        note(ev, frame, key, "write", form, spot)
        return join([UNKNOWN, default]) if default is not None else UNKNOWN
    if name == "__delitem__":
        note(ev, frame, key, "delete", form, spot)
    elif name == "__contains__":
        note(ev, frame, key, "membership", form, spot)
    elif name in ("update", "__ior__"):
        for given in arguments:
            write_all(ev, frame, given, form, spot)
        for keyword in named:
            note(ev, frame, text(keyword), "write", form, spot)
    elif name in ("copy", "__or__"):
        bulk(ev, frame, form, spot, "read")
        return of(("env", "copy"))
    elif name in ("clear", "popitem"):
        bulk(ev, frame, form, spot, "delete")
    elif name in ("keys", "__iter__"):
        return of(("env", "view"))
    else:
        bulk(ev, frame, form, spot, "read")
        return of(("env", "view"))
    return UNKNOWN


def write_all(ev: Evaluator, frame: Frame, value: Value, form: str, spot: Spot) -> None:
    """Every key of a mapping, or of a sequence of pairs, is written."""
    for atom in value.atoms:
        if atom[0] == "dict":
            for key, _ in atom[1]:
                note(ev, frame, key.with_deps(key.deps | value.deps), "write", form, spot)
            if not atom[2]:
                note(ev, frame, Value(UNKNOWN.atoms, value.deps), "write", form, spot)
        elif atom[0] == "seq":
            for pair in atom[1]:
                key = ev.pick(pair, [0])
                note(ev, frame, key.with_deps(key.deps | value.deps), "write", form, spot)
            if not atom[2] and not atom[1]:
                note(ev, frame, Value(UNKNOWN.atoms, value.deps), "write", form, spot)
        elif atom[0] == "env":
            bulk(ev, frame, form, spot, "write")
        else:
            note(ev, frame, Value(frozenset({atom}), value.deps), "write", form, spot)


def child_environment(ev: Evaluator, frame: Frame, value: Value, sure: bool, spot: Spot) -> None:
    """An ``env=`` argument: what it names is written for the child."""
    for atom in value.atoms:
        if atom[0] == "dict":
            for key, _ in atom[1]:
                known = all(a[0] == "s" and re.fullmatch(r"[A-Z_][A-Z0-9_\0]*", a[1]) for a in key.atoms)
                if sure or known:
                    note(ev, frame, key.with_deps(key.deps | value.deps), "write", "env=", spot)
            if sure and not atom[2]:
                note(ev, frame, Value(UNKNOWN.atoms, value.deps), "write", "env=", spot)
        elif sure and atom[0] in ("?", "um", "ext"):
            note(ev, frame, Value(UNKNOWN.atoms, value.deps), "write", "env=", spot)
        elif atom[0] == "env" and atom[1] != "copy":
            bulk(ev, frame, "env=", spot, "handed to a child")
