"""pydantic-settings models, read from their source: prefix, nesting and aliases give the names they read.

A field of a nested model is reported by its full name (``PREFIX_STORAGE__PATH``); that the outer field may also be
given whole, as JSON, is said in the detail.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import attributes
from .frames import Frame, Raw, ScopeId
from .lower_expr import Node
from .values import WILD, Value, texts

if TYPE_CHECKING:
    from .evaluate import Evaluator

_BASES = ("BaseSettings",)
MAX_NESTING = 8


def _is_settings(ev: Evaluator, sid: ScopeId) -> bool:
    for ancestor in attributes.ancestors(ev, sid):
        frame = ev.class_frames.get(ancestor)
        if frame is None or frame.parent is None:
            continue
        for base in frame.scope["bases"]:
            for atom in ev.eval(frame.parent, base).atoms:
                if atom[0] == "ext" and atom[1].rpartition(".")[2] in _BASES and atom[1].startswith("pydantic"):
                    return True
    return False


def _options(ev: Evaluator, sid: ScopeId) -> dict[str, Value]:
    """The model's configuration, nearest class last so that it wins."""
    options: dict[str, Value] = {}
    for ancestor in reversed(attributes.ancestors(ev, sid)):
        frame = ev.class_frames.get(ancestor)
        if frame is None or frame.module.scopes is None:
            continue
        for node in frame.scope["bind"].get("model_config", []):
            if node[0] == "K":
                options.update({name: ev.eval(frame, value) for name, value in node[3] if name})
            for atom in ev.eval(frame, node).atoms if node[0] != "K" else ():
                if atom[0] == "dict":
                    options.update({a[1]: value for key, value in atom[1] for a in key.atoms if a[0] == "s"})
        for node in frame.scope["bind"].get("Config", []):
            if node[0] == "CL":
                inner = attributes.class_frame(ev, frame, node[1])
                options.update({name: ev.variable(inner, name, None) for name in inner.scope["bind"]})
        for name, nodes in frame.scope["bind"].items():
            if name.startswith("#"):
                options[name[1:]] = ev.eval(frame.parent or frame, nodes[-1])
    return options


@dataclass(frozen=True, slots=True)
class _Model:
    """How one settings class names its variables.

    Attributes:
        frame: The frame of the class; its place is where accesses are noted.
        delimiter: Between the name of a field and that of a field within it; None when nesting is not read.
        case: Whether case matters; the names are upper-cased otherwise.
    """

    frame: Frame
    delimiter: str | None
    case: bool

    def note(self, ev: Evaluator, owner: Frame, field: str, stems: list[str], parents: list[str]) -> None:
        """Note the variables of one plain field, at the field where it is written."""
        _, line, column = owner.scope["ann"][field]
        spot = owner.spot(line, column)
        detail = f"also as JSON in {', '.join(map(self.spell, parents))}" if parents else ""
        for stem in stems:
            spelled = self.spell(stem).replace(WILD, "*")
            name = spelled if spelled.strip("*") else None
            ev.add(self.frame, Raw(name, "read", "settings", spot, frozenset(), None, detail, "call"))

    def spell(self, name: str) -> str:
        """A name as documentation writes it."""
        return name if self.case else name.upper()

    def field(self, ev: Evaluator, owner: Frame, field: str, stems: list[str], parents: list[str]) -> None:
        """Note a field, or the fields of the model that it holds."""
        models = _nested(ev, owner, field) if self.delimiter is not None and len(parents) < MAX_NESTING else []
        if not models:
            self.note(ev, owner, field, stems, parents)
        for sid in models:
            for inner, name in _fields(ev, sid):
                parts = _aliases(ev, inner, name) or [name]
                below = [f"{stem}{self.delimiter}{part}" for stem in stems for part in parts]
                self.field(ev, inner, name, below, [*parents, *stems])


def _nested(ev: Evaluator, owner: Frame, field: str) -> list[ScopeId]:
    """The scanned models that a field's annotation names."""
    value = attributes.annotated(ev, owner, owner.scope["ann"][field][0])
    ev.wanted.update((dep[1], dep[2]) for dep in value.deps if dep[0] == "?")
    found = [atom[1] for atom in value.atoms if atom[0] == "inst"]
    return [sid for sid in found if sid in ev.class_frames and ev.class_frames[sid].scope["ann"]]


def _fields(ev: Evaluator, sid: ScopeId) -> Iterator[tuple[Frame, str]]:
    """The fields of a model with the frame of the class that declares each, inherited ones included."""
    seen: set[str] = set()
    for ancestor in attributes.ancestors(ev, sid):
        owner = ev.class_frames.get(ancestor)
        for field, (annotation, _, _) in owner.scope["ann"].items() if owner is not None else ():
            if owner is None or field in seen or field.startswith("_") or field == "model_config":
                continue
            seen.add(field)
            if not _class_variable(annotation):
                yield owner, field


def settings_class(ev: Evaluator, frame: Frame) -> None:
    """Note every variable that a settings class reads when it is instantiated."""
    sid = frame.sid
    if not frame.scope["bases"] or not _is_settings(ev, sid):
        return
    ev.settings.add(sid)
    options = _options(ev, sid)
    prefixes = texts(options["env_prefix"]) if "env_prefix" in options else [""]
    given = texts(options["env_nested_delimiter"]) if "env_nested_delimiter" in options else []
    delimiter = next((entry for entry in given if entry not in (WILD, "None", "")), None)
    case = "case_sensitive" in options and ("c", True) in options["case_sensitive"].atoms
    model = _Model(frame, delimiter, case)
    for owner, field in _fields(ev, sid):
        stems = _aliases(ev, owner, field) or [prefix + field for prefix in prefixes]
        model.field(ev, owner, field, stems, [])


def _class_variable(annotation: Node) -> bool:
    return _named(annotation[1] if annotation[0] == "I" else annotation, "ClassVar")


def _aliases(ev: Evaluator, frame: Frame, field: str) -> list[str]:
    """The names that ``Field(alias=…)``, ``validation_alias`` or the older ``env=`` give a field instead."""
    found: list[str] = []
    for node in frame.scope["bind"].get(field, []):
        while node[0] == "O":
            node = node[2]
        if node[0] != "K":
            continue
        options = {name: value for name, value in node[3] if name}
        given = options.get("validation_alias", options.get("alias", options.get("env")))
        if given is None:
            continue
        found += _choices(ev, frame, given)
    return found


def _choices(ev: Evaluator, frame: Frame, node: Node) -> list[str]:
    if node[0] == "K":
        choices = [name for argument in node[2] for name in _choices(ev, frame, argument)]
        return choices if _named(node[1], "AliasChoices") else choices[:1]
    value = ev.eval(frame, node)
    names: list[str] = []
    for atom in value.atoms:
        if atom[0] == "s":
            names.append(atom[1])
        elif atom[0] == "seq":
            names += [a[1] for element in atom[1] for a in element.atoms if a[0] == "s"]
        else:
            names.append(WILD)
    return names


def _named(node: Node, name: str) -> bool:
    """Whether a node spells a name, plain or as the last part of a dotted one."""
    return bool((node[0] in ("N", "V") and node[1] == name) or (node[0] == "A" and node[2] == name))
