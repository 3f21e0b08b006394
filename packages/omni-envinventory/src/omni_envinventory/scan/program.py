"""A whole-program scan: reads files, reduces those that matter, evaluates, and widens until nothing new turns up.

A file is parsed only when it mentions the environment or a word that another file gave meaning to: a wrapper's name, an
exported alias, a class that reads variables. Each round evaluates what is known and yields the next words.
"""

from __future__ import annotations

import ast
import gc
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .cache import ReductionCache
from .evaluate import Evaluator
from .files import SourceFile, read, walk
from .frames import Module, Raw, ScopeId, Spot
from .interest import SEEDS, next_words, seeds
from .lower import Lowering, Scope
from .result import Access, Operation, Place, ScanResult, ScanStatistics, Unparsed, When

MAX_ROUNDS = 8

REQUEST_ROUNDS = 3
"""After this many rounds, names that depend on yet another function are left dynamic."""

MAX_KEPT_BYTES = 200_000
"""Trees of larger files are not kept from one round to the next."""


class Program:
    """The files of one scan and what is known about them.

    Args:
        files: The files, read.
        cache: Reductions of earlier scans, by digest.
    """

    def __init__(self, files: list[SourceFile], cache: ReductionCache) -> None:
        self.files = files
        self.cache = cache
        self.modules = [Module(number, file.module, file.shown, file.package) for number, file in enumerate(files)]
        self.interest: list[frozenset[bytes]] = [frozenset() for _ in files]
        self.unparsed: dict[int, Unparsed] = {}
        self.parsed: set[int] = set()
        self.trees: dict[int, ast.Module] = {}
        self.rounds = 0

    def reduce(self, number: int, words: frozenset[bytes]) -> None:
        """Reduce one file with these words of interest."""
        file = self.files[number]
        self.interest[number] = words
        key = (file.digest, words)
        scopes = self.cache.get(key)
        if scopes is None:
            scopes = self.lower(number, words)
            self.cache.put(key, scopes)
        self.modules[number].scopes = scopes

    def lower(self, number: int, words: frozenset[bytes]) -> list[Scope]:
        """Parse one file; a file that is no Python becomes an empty module and is reported."""
        file = self.files[number]
        self.parsed.add(number)
        try:
            tree = self.trees.get(number)
            if tree is None:
                tree = ast.parse(file.data, filename=file.shown)
                if len(file.data) <= MAX_KEPT_BYTES:
                    self.trees[number] = tree
            return Lowering(tree, file.lines_with(words), file.rebound()).scopes
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = error.lineno or 0 if isinstance(error, SyntaxError) else 0
            reason = error.msg if isinstance(error, SyntaxError) else str(error) or type(error).__name__
            mentions = any(file.has(seed) for seed in SEEDS)
            self.unparsed[number] = Unparsed(file.shown, line, reason, mentions)
            return Lowering(ast.Module([], []), [], frozenset()).scopes

    def give_up(self, evaluator: Evaluator, words: dict[bytes, set[int]], unfinished: bool) -> None:
        """What could not be followed to all its uses stays dynamic where it is written."""
        for sid, raws in evaluator.pending.items():
            scopes = self.modules[sid[0]].scopes
            assert scopes is not None
            names = {scopes[sid[1]]["name"].encode(), scopes[scopes[sid[1]]["parent"]]["name"].encode()}
            distant = not any(len(dep) == 2 for raw in raws for dep in raw.needs)
            if unfinished or distant or any(sid[0] in words.get(name, ()) for name in names):
                evaluator.escaped.setdefault(sid, (sid[0], scopes[sid[1]]["line"], 0, sid[1]))
        for word, modules in words.items():
            for number in modules:
                detail = f"{word.decode()} carries the environment under a name too common to follow into other files"
                raw = Raw(None, "read", "export", (number, 1, 0, 0), frozenset(), None, detail, "call")
                evaluator.located[raw] = None

    def evaluate(self) -> Evaluator:
        """Widen until no round adds a word, and give the last evaluation."""
        found = [seeds(file) for file in self.files]
        for number, words in enumerate(found):
            if words:
                self.reduce(number, words)
        loose: dict[str, list[ScopeId]] = {}
        given_up: dict[bytes, set[int]] = {}
        evaluator = Evaluator(self.modules, loose)
        while True:
            self.rounds += 1
            evaluator = Evaluator(self.modules, loose)
            evaluator.run()
            wanted, again = next_words(evaluator, self.files, self.interest, given_up, self.rounds <= REQUEST_ROUNDS)
            if (not wanted and again == loose) or self.rounds >= MAX_ROUNDS:
                self.give_up(evaluator, given_up, bool(wanted))
                return evaluator
            loose = again
            for number, words in wanted.items():
                self.reduce(number, self.interest[number] | words)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """No warnings and no cycle collection while a program is evaluated.

    The inspected code's invalid escapes are not ours to report; and trees and frames only grow until the end, so that
    the collector would walk millions of live nodes again and again and free nothing.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if collecting:
            gc.enable()


def _place(evaluator: Evaluator, spot: Spot) -> Place:
    module = evaluator.modules[spot[0]]
    assert module.scopes is not None
    return Place(module.path, spot[1], spot[2] + 1, module.scopes[spot[3]]["qual"])


def _accesses(evaluator: Evaluator) -> list[Access]:
    raws: dict[Raw, None] = dict(evaluator.located)
    for sid, pending in evaluator.pending.items():
        if sid not in evaluator.called or sid in evaluator.escaped:
            for raw in pending:
                seen = "not every call can be" if sid in evaluator.escaped else "no call was"
                detail = f"the name is a parameter, and {seen} followed"
                raws[Raw(raw.name, raw.operation, raw.form, raw.spot, frozenset(), raw.via, detail, raw.when)] = None
    merged: dict[tuple[object, ...], Access] = {}
    for raw in raws:
        access = Access(
            raw.name,
            _place(evaluator, raw.spot),
            Operation(raw.operation),
            raw.form,
            When(raw.when),
            None if raw.via is None else _place(evaluator, raw.via),
            raw.detail,
        )
        key = (access.name, access.place, access.operation, access.form)
        known = merged.get(key)
        if known is None or (known.when is When.CALL and access.when is When.IMPORT):
            merged[key] = access
    return sorted(merged.values(), key=Access.sort_key)


def scan(
    paths: Iterable[str | Path],
    *,
    base: str | Path | None = None,
    exclude: Sequence[str] = (),
    cache: str | Path | None = None,
) -> ScanResult:
    """Find every access to the environment in Python sources, without importing them.

    Args:
        paths: Files and folders; folders are searched for ``*.py``.
        base: Results name files relative to this folder; the current one by default.
        exclude: Patterns (``*`` also matches ``/``) of files to leave out, matched against the shown name.
        cache: A file that keeps reductions between scans, keyed by digest; None keeps none.

    Returns:
        The accesses in order of place, the files that are not Python, and statistics.

    Raises:
        SourceNotFoundError: A path does not exist.
    """
    started = time.monotonic()
    root = Path.cwd() if base is None else Path(base)
    packages: dict[Path, bool] = {}
    files = [read(path, found, shown, packages) for path, found, shown in walk(map(Path, paths), root, exclude)]
    store = ReductionCache(None if cache is None else Path(cache))
    program = Program(files, store)
    with _undisturbed():
        evaluator = program.evaluate()
    store.save()
    accesses = _accesses(evaluator)
    for unparsed in program.unparsed.values():
        if unparsed.mentions_environment:
            place = Place(unparsed.path, max(unparsed.line, 1), 1, "<module>")
            detail = f"not Python that this interpreter reads: {unparsed.reason}"
            accesses.append(Access(None, place, Operation.READ, "unparsed", When.CALL, None, detail))
    accesses.sort(key=Access.sort_key)
    statistics = ScanStatistics(len(files), len(program.parsed), store.hits, program.rounds, time.monotonic() - started)
    return ScanResult(tuple(accesses), tuple(sorted(program.unparsed.values())), statistics)


def scan_source(source: str, *, name: str = "<source>") -> ScanResult:
    """Scan one piece of source text as a module of its own."""
    data = source.encode()
    file = SourceFile(Path(name), name, "__main__", False, data, "")
    program = Program([file], ReductionCache(None))
    with _undisturbed():
        evaluator = program.evaluate()
    return ScanResult(tuple(_accesses(evaluator)), tuple(program.unparsed.values()))
