"""Inventories from TOML, with the file and line of whatever is wrong."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from . import toml_lines
from .errors import InventoryError, InventoryNotFoundError, MissingFieldError, UnknownFieldError, UnknownValueError
from .model import Inventory, Lifecycle, Project, Rules, Variable, Waiver

BUILTIN = ("vllm-omni",)
"""Names of the inventories that come with the package."""

_TEXT_FIELDS = (
    "name",
    "category",
    "owner",
    "default",
    "type",
    "read",
    "precedence",
    "invalid",
    "summary",
    "topic",
    "replacement",
    "since",
    "until",
    "disposition",
)
_VARIABLE_FIELDS = frozenset({*_TEXT_FIELDS, "lifecycle", "redact", "stages"})
_WAIVER_FIELDS = frozenset({"path", "scope", "reason", "names"})
_TABLES = frozenset({"inventory", "rules", "variable", "waiver"})
_PROJECT_LISTS = ("sources", "exclude", "mentions", "owned_prefixes", "collect_prefixes", "collect_allow")
_INVENTORY_FIELDS = frozenset({"name", "extends", "categories", "reference", "version", *_PROJECT_LISTS})
_RULE_FIELDS = frozenset({"required_prefixes", "grandfathered", "counts"})


class _Table:
    """One table with its places: typed access that names the line of a wrong value."""

    def __init__(self, source: str, values: Mapping[str, Any], place: toml_lines.Table, kind: str) -> None:
        self.source = source
        self.values = values
        self.place = place
        self.kind = kind

    def only(self, allowed: frozenset[str]) -> None:
        for key in self.values:
            if key not in allowed:
                problem = f"unknown field {key!r} in {self.kind}; it has {', '.join(sorted(allowed))}"
                raise UnknownFieldError(self.source, self.place.at(key), problem)

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return value
        if key in ("since", "until") and hasattr(value, "isoformat"):
            return str(value.isoformat())
        raise UnknownValueError(self.source, self.place.at(key), f"{key} must be text, not {value!r}")

    def required(self, key: str) -> str:
        value = self.text(key)
        if value is None or not value.strip():
            raise MissingFieldError(self.source, self.place.at(key), f"{self.kind} needs {key!r}")
        return value

    def flag(self, key: str) -> bool:
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise UnknownValueError(self.source, self.place.at(key), f"{key} must be true or false, not {value!r}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise UnknownValueError(self.source, self.place.at(key), f"{key} must be a list of texts")
        return tuple(value)


def _variable(table: _Table) -> Variable:
    table.only(_VARIABLE_FIELDS)
    lifecycle = table.text("lifecycle") or "stable"
    if lifecycle not in set(Lifecycle):
        problem = f"lifecycle {lifecycle!r} is none of {', '.join(Lifecycle)}"
        raise UnknownValueError(table.source, table.place.at("lifecycle"), problem)
    return Variable(
        name=table.required("name"),
        category=table.required("category"),
        owner=table.text("owner") or "",
        lifecycle=Lifecycle(lifecycle),
        default=table.text("default"),
        type=table.text("type") or "",
        read=table.text("read") or "",
        precedence=table.text("precedence") or "",
        invalid=table.text("invalid") or "",
        summary=table.text("summary") or "",
        topic=table.text("topic") or "",
        redact=table.flag("redact"),
        replacement=table.text("replacement"),
        since=table.text("since"),
        until=table.text("until"),
        stages=table.texts("stages") if "stages" in table.values else None,
        disposition=table.text("disposition"),
        source=table.source,
        line=table.place.line,
    )


def _rules(source: str, values: Mapping[str, Any], places: list[toml_lines.Table]) -> Rules:
    place = next(iter(toml_lines.named(places, "rules")), toml_lines.Table("rules", 0))
    counts_place = next(iter(toml_lines.named(places, "rules.counts")), place)
    table = _Table(source, values, place, "[rules]")
    table.only(_RULE_FIELDS)
    counts = values.get("counts", {})
    if not isinstance(counts, dict):
        raise UnknownValueError(source, place.at("counts"), "counts must be a table of category = number")
    for category, number in counts.items():
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise UnknownValueError(
                source, counts_place.at(category), f"counts.{category} must be a number, not {number!r}"
            )
    return Rules(table.texts("required_prefixes"), table.texts("grandfathered"), dict(counts))


def _entries(values: Mapping[str, Any], key: str, source: str) -> list[Mapping[str, Any]]:
    found = values.get(key, [])
    if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
        raise UnknownValueError(source, 0, f"write [[{key}]] for each {key}")
    return found


def parse_inventory(text: str, source: str = "<text>", *, folder: Path | None = None) -> Inventory:
    """Read an inventory from TOML text.

    Args:
        text: The document.
        source: What errors call it.
        folder: Where relative ``extends`` paths start.

    Raises:
        InventoryError: Something it must not say, with the line; the subclass tells the kind.
        InventoryNotFoundError: An inventory it extends does not exist.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        raise InventoryError(source, int(found[1]) if found else 0, f"not TOML: {error}") from None
    places = toml_lines.tables(text)
    for key in values:
        if key not in _TABLES:
            line = next(
                (table.line or table.at(key) for table in places if key in (table.name.split(".")[0], *table.keys)), 0
            )
            raise UnknownFieldError(source, line, f"unknown table {key!r}; there are {', '.join(sorted(_TABLES))}")
    head_place = next(iter(toml_lines.named(places, "inventory")), toml_lines.Table("inventory", 1))
    head_values = values.get("inventory", {})
    if not isinstance(head_values, dict):
        raise UnknownValueError(source, head_place.line, "[inventory] must be a table")
    head = _Table(source, head_values, head_place, "[inventory]")
    head.only(_INVENTORY_FIELDS)
    variables = [
        _variable(_Table(source, entry, place, "[[variable]]"))
        for entry, place in zip(_entries(values, "variable", source), toml_lines.named(places, "variable"))
    ]
    waivers: list[Waiver] = []
    for entry, place in zip(_entries(values, "waiver", source), toml_lines.named(places, "waiver")):
        table = _Table(source, entry, place, "[[waiver]]")
        table.only(_WAIVER_FIELDS)
        waivers.append(
            Waiver(
                table.required("path"),
                table.text("scope") or "<module>",
                table.required("reason"),
                table.texts("names"),
                place.line,
            )
        )
    project = Project(
        sources=head.texts("sources"),
        exclude=head.texts("exclude"),
        reference=head.text("reference"),
        mentions=head.texts("mentions"),
        owned_prefixes=head.texts("owned_prefixes"),
        collect_prefixes=head.texts("collect_prefixes"),
        collect_allow=head.texts("collect_allow"),
        version=head.text("version"),
    )
    return Inventory(
        name=head.text("name") or Path(source).stem,
        variables=tuple(variables),
        project=project,
        rules=_rules(source, values.get("rules", {}), places),
        waivers=tuple(waivers),
        categories=head.texts("categories"),
        bases=tuple(
            load_inventory(name if name in BUILTIN else (folder or Path()) / name) for name in head.texts("extends")
        ),
        source=source,
    )


def load_inventory(source: str | Path) -> Inventory:
    """An inventory from a TOML file, or a built-in one by name (``vllm-omni``).

    Raises:
        InventoryNotFoundError: There is no such file or built-in.
        InventoryError: The file says something it must not; the message starts with ``file:line``.
    """
    if isinstance(source, str) and source in BUILTIN:
        stored = resources.files(__package__) / "builtin" / f"{source.replace('-', '_')}.toml"
        return parse_inventory(stored.read_text("utf-8"), f"<built-in {source}>")
    path = Path(source)
    try:
        text = path.read_text("utf-8")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise InventoryNotFoundError(str(path)) from None
    except UnicodeDecodeError as error:
        raise InventoryError(str(path), 0, f"not UTF-8: {error.reason}") from None
    return parse_inventory(text, str(path), folder=path.parent)
