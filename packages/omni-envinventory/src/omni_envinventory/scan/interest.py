"""Which words make a file worth parsing: the environment's own, and those that earlier rounds gave meaning to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .files import SourceFile
from .frames import ScopeId
from .lower import Scope

if TYPE_CHECKING:
    from .evaluate import Evaluator

SEEDS = tuple(
    word.encode()
    for word in (
        "environ",
        "environb",
        "getenv",
        "getenvb",
        "putenv",
        "unsetenv",
        "expandvars",
        "BaseSettings",
        "envvar",
        "env_var",
        "auto_envvar_prefix",
        "execve",
        "posix_spawn",
    )
)

COMMON = frozenset(
    {
        "get",
        "pop",
        "setdefault",
        "update",
        "keys",
        "values",
        "items",
        "copy",
        "read",
        "write",
        "open",
        "load",
        "call",
        "run",
        "set",
        "add",
        "append",
        "extend",
        "index",
        "count",
        "close",
        "join",
        "format",
        "encode",
        "decode",
        "start",
        "stop",
        "send",
        "main",
        "__init__",
        "__call__",
        "__getitem__",
        "__getattr__",
        "__contains__",
        "__enter__",
        "name",
        "env",
        "value",
        "data",
        "key",
        "config",
        "settings",
        "log",
        "info",
        "debug",
        "error",
        "warning",
        "exec",
    }
)
"""Words too common to follow by themselves: a file must also name where they come from."""


def _scope(evaluator: Evaluator, sid: ScopeId) -> Scope:
    scopes = evaluator.modules[sid[0]].scopes
    assert scopes is not None
    return scopes[sid[1]]


def _interesting(evaluator: Evaluator, matters: set[ScopeId], module: int, name: str) -> bool:
    """Whether a module-level name carries the environment, one of its functions, a wrapper or such an instance."""
    frame = evaluator.module_frames[module]
    value = evaluator.variable(frame, name, None)
    for atom in value.atoms:
        if atom[0] in ("env", "sink", "em", "part", "any"):
            return True
        if atom[0] in ("fn", "cls") and atom[1] in matters:
            return True
        if atom[0] == "inst" and atom[1] in matters:
            return True
    return False


def next_words(
    evaluator: Evaluator, files: list[SourceFile], interest: list[frozenset[bytes]]
) -> tuple[dict[int, frozenset[bytes]], dict[str, list[ScopeId]]]:
    """What the next round should reduce, and which methods a call on an unknown receiver may mean.

    Returns:
        New words per file, and wrapper methods by name.
    """
    loose: dict[str, list[ScopeId]] = {}
    matters: set[ScopeId] = set()
    hints: dict[bytes, set[bytes] | None] = {}

    def hint(word: str, module: int) -> None:
        origin = evaluator.modules[module].name.rpartition(".")[2].encode()
        known = hints.setdefault(word.encode(), set())
        if known is not None:
            known.add(origin)

    for sid in evaluator.pending:
        scope = _scope(evaluator, sid)
        if scope["kind"] != "function":
            continue
        matters.add(sid)
        parent = _scope(evaluator, (sid[0], scope["parent"]))
        if parent["kind"] == "class":
            matters.add((sid[0], scope["parent"]))
            if scope["name"] not in COMMON and not scope["name"].startswith("__"):
                loose.setdefault(scope["name"], []).append(sid)
                hints[scope["name"].encode()] = None
            hint(parent["name"], sid[0])
            hint(scope["name"], sid[0])
        elif parent["kind"] == "module":
            hint(scope["name"], sid[0])
    for sid, frame in evaluator.roots.items():
        scope = _scope(evaluator, sid)
        if frame.scope["ret"] and _scope(evaluator, (sid[0], scope["parent"]))["kind"] == "module":
            results = [evaluator.eval(frame, node) for node in scope["ret"]]
            atoms = [atom for value in results for atom in value.atoms]
            if any(a[0] in ("env", "sink", "em", "part") or (a[0] == "fn" and a[1] in matters) for a in atoms):
                matters.add(sid)
                hint(scope["name"], sid[0])
    for number in evaluator.module_frames:
        module = evaluator.modules[number]
        assert module.scopes is not None
        for name in module.scopes[0]["bind"]:
            if _interesting(evaluator, matters, number, name):
                hint(name, number)
    wanted: dict[int, frozenset[bytes]] = {}
    for word, origins in hints.items():
        for number, file in enumerate(files):
            if word in interest[number] or not file.has(word):
                continue
            own = evaluator.modules[number].name.rpartition(".")[2].encode()
            if origins is None or own in origins or any(file.has(origin) for origin in origins):
                wanted[number] = wanted.get(number, frozenset()) | {word}
    for number, name in evaluator.wanted:
        word = name.encode()
        if word not in interest[number] and (files[number].has(word) or evaluator.modules[number].scopes is None):
            wanted[number] = wanted.get(number, frozenset()) | {word}
    return wanted, loose
