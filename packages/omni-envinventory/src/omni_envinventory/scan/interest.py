"""Which words make a file worth parsing: the environment's own, and those that earlier rounds gave meaning to."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .files import SourceFile
from .frames import ScopeId
from .lower import Scope
from .values import Value

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

_CHILD_ENVIRONMENT = re.compile(rb"\benv\s*=")


def seeds(file: SourceFile) -> frozenset[bytes]:
    """The environment's own words in a file; ``env=`` is one where child processes are started."""
    found = frozenset(seed for seed in SEEDS if file.has(seed))
    if b"subprocess" in file.data and _CHILD_ENVIRONMENT.search(file.data):
        found |= {b"env"}
    return found


_COMMON_WORDS = """
    Node Pool __call__ __contains__ __enter__ __getattr__ __getitem__ __init__ add append apply build call
    check close config configure connect copy count create data debug decode decorator delete encode env
    error exec execute extend find format func get index info init inner install invoke items join key keys
    launch list load log logs main make name node open parse path pop prepare process read register remote
    resolve run send set setdefault settings setup shutdown start status stop submit test update val value
    values warning wrapper write
"""
COMMON = frozenset(_COMMON_WORDS.split())
"""Words too common to follow by themselves: a file must also name where they come from."""

MOST_FILES = 100
"""An alias or a wrapper whose name would send the scan to more files than this, and a tenth of all, is given up."""

MOST_COMMON_FILES = 20
"""The same for wrappers with a common name."""


def _scope(evaluator: Evaluator, sid: ScopeId) -> Scope:
    scopes = evaluator.modules[sid[0]].scopes
    assert scopes is not None
    return scopes[sid[1]]


class Interest:
    """Gathers, from one evaluation, the words that give the next one more to look at.

    Attributes:
        loose: Wrapper methods that a call on a receiver of unknown type may mean, by name.
        matters: Functions and classes through which variables are read.
        local: Words that matter in their own file only.
        exported: Words that matter elsewhere, with the last parts of the modules they come from; None for any file.
        origins: The modules that a word comes from.
        aliases: Exported words that stand for the environment itself or an instance, not for a wrapper.
    """

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.loose: dict[str, list[ScopeId]] = {}
        self.matters: set[ScopeId] = set()
        self.local: dict[int, set[bytes]] = {}
        self.exported: dict[bytes, set[bytes] | None] = {}
        self.origins: dict[bytes, set[int]] = {}
        self.aliases: set[bytes] = set()
        for sid in evaluator.settings:
            self.export(_scope(evaluator, sid)["name"], sid[0])
        self._wrappers()
        before = -1
        while before != len(self.matters):
            before = len(self.matters)
            self._returned()
        self._names()

    def export(self, word: str, module: int) -> None:
        """A word that other files may use with this meaning."""
        self.here(word, module)
        self.origins.setdefault(word.encode(), set()).add(module)
        known = self.exported.setdefault(word.encode(), set())
        if known is not None:
            known.add(self.evaluator.modules[module].name.rpartition(".")[2].encode())

    def here(self, word: str, module: int) -> None:
        """A word that matters in its own file."""
        self.local.setdefault(module, set()).add(word.encode())

    def carries(self, value: Value) -> bool:
        """Whether a value is the environment, one of its functions, a wrapper, or an instance with one."""
        for atom in value.atoms:
            if atom[0] in ("env", "sink", "em", "part") or (
                atom[0] in ("fn", "cls", "inst") and atom[1] in self.matters
            ):
                return True
        return False

    def _wrappers(self) -> None:
        for sid, raws in self.evaluator.pending.items():
            scope = _scope(self.evaluator, sid)
            if not any(len(dep) == 2 for raw in raws for dep in raw.needs):
                continue
            self.matters.add(sid)
            if scope["kind"] != "function":
                continue
            parent = _scope(self.evaluator, (sid[0], scope["parent"]))
            if parent["kind"] == "module":
                self.export(scope["name"], sid[0])
            elif parent["kind"] == "class":
                self.matters.add((sid[0], scope["parent"]))
                self.export(parent["name"], sid[0])
                if scope["name"].startswith("__"):
                    continue
                self.export(scope["name"], sid[0])
                if scope["name"] not in COMMON:
                    self.loose.setdefault(scope["name"], []).append(sid)
                    self.exported[scope["name"].encode()] = None
            else:
                self.here(scope["name"], sid[0])

    def _returned(self) -> None:
        """Functions that give out what matters: a caller may read through what it gets."""
        for sid, frame in self.evaluator.roots.items():
            if sid in self.matters:
                continue
            nodes = [*frame.scope["ret"], *frame.scope["yields"]]
            if not any(self.carries(self.evaluator.eval(frame, node)) for node in nodes):
                continue
            self.matters.add(sid)
            scope = _scope(self.evaluator, sid)
            parent = _scope(self.evaluator, (sid[0], scope["parent"]))
            if scope["kind"] == "function" and not scope["name"].startswith("__"):
                if parent["kind"] in ("module", "class"):
                    self.export(scope["name"], sid[0])
                self.here(scope["name"], sid[0])

    def _names(self) -> None:
        """Names and attributes that hold what matters, in every frame that was evaluated."""
        for frame in list(self.evaluator.frames):
            module = frame.module.number
            for name, value in frame.params.items():
                if name not in ("self", "cls") and self.carries(value):
                    self.here(name, module)
            top = frame.scope["kind"] in ("module", "class")
            for name, nodes in frame.scope["bind"].items():
                if all(node[0] in ("S", "C", "J", "?") for node in nodes):
                    continue
                if self.carries(self.evaluator.variable(frame, name, None)):
                    plain = name.partition("#")[0]
                    if top and plain:
                        self.export(plain, module)
                        if not all(node[0] in ("FN", "CL", "IM") for node in nodes):
                            self.aliases.add(plain.encode())
                    elif plain:
                        self.here(plain, module)
            for attribute, nodes in frame.scope["selfattr"].items():
                if any(self.carries(self.evaluator.eval(frame, node)) for node in nodes):
                    self.export(attribute, module)
                    self.aliases.add(attribute.encode())


def next_words(
    evaluator: Evaluator,
    files: list[SourceFile],
    interest: list[frozenset[bytes]],
    given_up: dict[bytes, set[int]],
    requests: bool,
) -> tuple[dict[int, frozenset[bytes]], dict[str, list[ScopeId]]]:
    """What the next round should reduce, and which methods a call on an unknown receiver may mean.

    Args:
        evaluator: The last round.
        files: All files.
        interest: The words each file was reduced with.
        given_up: Words found too common to follow, with the modules they come from; added to here.
        requests: Whether functions that a name depends on are still asked for.

    Returns:
        New words per file, and wrapper methods by name.
    """
    gathered = Interest(evaluator)
    wanted: dict[int, frozenset[bytes]] = {}

    def want(number: int, word: bytes) -> None:
        if word not in interest[number]:
            wanted[number] = wanted.get(number, frozenset()) | {word}

    for number, words in gathered.local.items():
        for word in words:
            if files[number].has(word):
                want(number, word)
    most = max(MOST_FILES, len(files) // 10)
    for word, origins in gathered.exported.items():
        if word in given_up:
            continue
        matching = [
            number
            for number, file in enumerate(files)
            if word not in interest[number]
            and file.has(word)
            and (origins is None or any(file.has(origin) for origin in origins))
        ]
        common = word.decode() in COMMON and word not in gathered.aliases
        if len(matching) > (MOST_COMMON_FILES if common else most):
            given_up[word] = gathered.origins[word]
            continue
        for number in matching:
            want(number, word)
    handed = {(number, name) for sid, number, name in evaluator.handed if sid in gathered.matters}
    for number, name in (*(evaluator.wanted if requests else ()), *handed):
        if files[number].has(name.encode()) or evaluator.modules[number].scopes is None:
            want(number, name.encode())
    return wanted, gathered.loose
