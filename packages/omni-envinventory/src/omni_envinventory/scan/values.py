"""What an expression may be: a finite set of atoms, and the parameters that the set depends on.

Atoms are tuples whose first item is their kind:

=======  =====================================================================
kind     rest
=======  =====================================================================
s        text; ``WILD`` stands for a part that is not known
c        another constant
ext      dotted name of something outside the scanned sources
mod      number of a scanned module
fn       scope id, closure frame number, bound first argument (a Value) or None
cls      scope id
inst     scope id, constructor arguments
env      kind: "environ", "environb", "copy"
sink     which function of the environment, kind of its mapping
seq      elements (Values), whether the length is exact
dict     pairs (Value, Value), whether complete
part     partial: function Value, positional Values, keyword pairs
smeth    text value, method name
dmeth    dict or sequence atom, method name
um       method name of an unknown receiver
sk       module number, name: not reduced yet, ask for it
=======  =====================================================================
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Atom = tuple[Any, ...]

WILD = "\0"
MAX_ATOMS = 400
"""A name with more possible spellings than this is reported as a pattern instead."""


class Value:
    """An immutable set of atoms with the parameters it depends on.

    Attributes:
        atoms: What the expression may be; ``UNKNOWN_ATOM`` among them means "or something else".
        deps: ``(scope id, parameter)`` pairs, and ``("?", module, name)`` requests for code not reduced yet.
    """

    __slots__ = ("_hash", "atoms", "deps")

    def __init__(self, atoms: frozenset[Atom], deps: frozenset[Any] = frozenset()) -> None:
        self.atoms = atoms
        self.deps = deps
        self._hash = hash(atoms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Value) and self.atoms == other.atoms and self.deps == other.deps

    def __repr__(self) -> str:
        return f"Value({set(self.atoms)}, {set(self.deps)})"

    def with_deps(self, deps: frozenset[Any]) -> Value:
        """The same atoms, depending on these parameters instead."""
        return self if deps == self.deps else Value(self.atoms, deps)

    @property
    def bare(self) -> bool:
        """Whether nothing at all is known."""
        return self.atoms == _BARE


def distant(deps: frozenset[Any]) -> frozenset[Any]:
    """The same dependencies, marked as reaching through an attribute, an element or an unknown call.

    Such a name is followed to the direct caller and no further: only plain text travels through several wrappers.
    """
    return frozenset(dep if dep[0] == "?" or len(dep) == 3 else (*dep, "~") for dep in deps)


UNKNOWN_ATOM: Atom = ("?",)
_BARE = frozenset({UNKNOWN_ATOM})
UNKNOWN = Value(_BARE)
NOTHING = Value(frozenset())


def of(*atoms: Atom) -> Value:
    """A value of these atoms."""
    return Value(frozenset(atoms))


def text(content: str) -> Value:
    """One known text."""
    return Value(frozenset({("s", content)}))


def join(values: Iterable[Value]) -> Value:
    """Any of these values."""
    atoms: set[Atom] = set()
    deps: set[Any] = set()
    for value in values:
        atoms |= value.atoms
        deps |= value.deps
    if len(atoms) > MAX_ATOMS:
        atoms = narrowed(atoms)
    return Value(frozenset(atoms), frozenset(deps))


def narrowed(atoms: set[Atom]) -> set[Atom]:
    """Too many atoms: what touches the environment stays, texts become a pattern, the rest is unknown."""
    kept = {atom for atom in atoms if atom[0] in ("env", "sink", "em", "fn", "inst", "any")}
    if len(kept) > MAX_ATOMS:
        kept = {atom for atom in kept if atom[0] in ("env", "sink", "em", "any")}
    spelled = [atom[1] for atom in atoms if atom[0] == "s"]
    return {*kept, *(widen(spelled) if spelled else []), UNKNOWN_ATOM}


def widen(texts: list[str]) -> list[Atom]:
    """Too many texts, as one pattern of what they start and end with."""
    first, last = min(texts), max(texts)
    size = 0
    while size < min(len(first), len(last)) and first[size] == last[size]:
        size += 1
    return [("s", first[:size].partition(WILD)[0] + WILD)]


def squeeze(content: str) -> str:
    """Runs of unknown parts are one unknown part."""
    while WILD + WILD in content:
        content = content.replace(WILD + WILD, WILD)
    return content


def texts(value: Value) -> list[str]:
    """Every text the value may be as part of a string; an unknown atom counts as ``WILD``."""
    found: list[str] = []
    for atom in value.atoms:
        if atom[0] == "s":
            found.append(atom[1])
        elif atom[0] == "c":
            found.append(str(atom[1]))
        else:
            found.append(WILD)
    return found


def concatenate(parts: list[Value]) -> Value:
    """Every text that the parts may make when written one after the other."""
    built = [""]
    deps: set[Any] = set()
    for part in parts:
        deps |= part.deps
        choices = list(dict.fromkeys(texts(part))) or [WILD]
        if len(built) * len(choices) > MAX_ATOMS:
            choices = [WILD]
        built = [before + choice for before in built for choice in choices]
    return Value(frozenset(("s", squeeze(content)) for content in built), frozenset(deps))
