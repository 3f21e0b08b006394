"""The reference page: written from the inventory, and held against the committed one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from .model import Inventory, Lifecycle, Variable

NOTICE = "<!-- Written by `omni-envinventory docs`; edit the inventory, not this page. -->"

_CATEGORY_TEXT = {
    "inherited": "Read because a library underneath reads them too. Their meaning is that library's.",
    "platform": "Set by the machine, the launcher or a driver. The project reads them and does not define them.",
    "model": "Read by one model's code. They are not a contract; the last column says what is to become of each.",
    "benchmark": "Read by benchmarks and evaluation scripts only.",
    "internal": "How the project's own processes talk to one another. Do not set them.",
}


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|") or "–"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _type_and_default(variable: Variable) -> str:
    parts = [_cell(variable.type)] if variable.type else []
    parts.append(f"default: {_cell(variable.default)}" if variable.default is not None else "no default")
    return "; ".join(parts)


def _status(variable: Variable) -> str:
    if variable.lifecycle not in (Lifecycle.DEPRECATED, Lifecycle.REMOVED):
        return str(variable.lifecycle)
    parts = [str(variable.lifecycle)]
    parts += [f"since {variable.since}"] if variable.since else []
    parts += [f"until {variable.until}"] if variable.until and variable.lifecycle is Lifecycle.DEPRECATED else []
    return f"{' '.join(parts)}; use `{variable.replacement}`"


def _summary(variable: Variable) -> str:
    return f"`{variable.name}`" + (f"<br>{_cell(variable.summary)}" if variable.summary else "")


def _applies(variable: Variable) -> str:
    stages = "" if variable.stages is None else f"; stages: {', '.join(variable.stages) or 'none'}"
    return _cell(variable.read) + stages


def _precedence(variable: Variable) -> str:
    parts = [part for part in (variable.precedence, f"invalid: {variable.invalid}" if variable.invalid else "") if part]
    return _cell("; ".join(parts))


def _public_table(variables: Iterable[Variable]) -> list[str]:
    lines = [
        _row(["Name", "Type and default", "Applies to, read when", "Precedence, invalid values", "Lifecycle"]),
        _row(["---"] * 5),
    ]
    for variable in sorted(variables, key=lambda v: v.name):
        row = [
            _summary(variable),
            _type_and_default(variable),
            _applies(variable),
            _precedence(variable),
            _status(variable),
        ]
        lines.append(_row(row))
    return lines


def _other_table(category: str, variables: list[Variable]) -> list[str]:
    """Names in running text, not in the first cell: this page documents the public names, and lists the rest."""
    ordered = sorted(variables, key=lambda v: v.name)
    if not any(v.summary or v.read or v.disposition for v in ordered):
        return [", ".join(f"`{variable.name}`" for variable in ordered) + "."]
    lines: list[str] = []
    for variable in ordered:
        parts = [_cell(part).rstrip(".") for part in (variable.summary, variable.read) if part]
        if variable.disposition:
            parts.append(
                {
                    "promote": "to become typed configuration",
                    "request_scope": "to become part of the request",
                    "external": "belongs to other software",
                    "internalize": "to become a constant or a debug switch",
                    "deprecate_remove": "to be removed",
                }[variable.disposition]
            )
        if variable.redact:
            parts.append("never shown in a report")
        lines.append(f"- `{variable.name}`" + (f": {'; '.join(parts)}." if parts else ""))
    return lines


def render(inventory: Inventory, *, title: str = "Environment variables") -> str:
    """The whole page as Markdown, ending in one newline."""
    public = [v for v in inventory if v.category == "public" and v.lifecycle is not Lifecycle.REMOVED]
    removed = [v for v in inventory if v.lifecycle is Lifecycle.REMOVED]
    lines = [f"# {title}", "", NOTICE, ""]
    if public:
        number = f"{len(public)} variables are" if len(public) != 1 else "One variable is"
        lines += [
            (
                f"{number} part of the public contract of {inventory.name}. Whatever else the code reads is listed "
                "further down, so that nobody has to search for it; it may change without notice."
            ),
            "",
        ]
    topics: dict[str, list[Variable]] = {}
    for variable in public:
        topics.setdefault(variable.topic or "General", []).append(variable)
    for topic, variables in topics.items():
        lines += [f"## {topic}", "", *_public_table(variables), ""]
    if removed:
        lines += ["## Removed", "", "Setting one of these does nothing any more.", "", *_public_table(removed), ""]
    others: dict[str, list[Variable]] = {}
    for variable in inventory:
        if variable.category != "public" and variable.lifecycle is not Lifecycle.REMOVED:
            others.setdefault(variable.category, []).append(variable)
    for category, variables in others.items():
        lines += [f"## {category.capitalize()} variables", ""]
        if category in _CATEGORY_TEXT:
            lines += [_CATEGORY_TEXT[category], ""]
        lines += [*_other_table(category, variables), ""]
    return "\n".join(lines).rstrip() + "\n"


def page_title(page: str) -> str:
    """The title of a page: its first line without the mark."""
    return page.partition("\n")[0].removeprefix("#").strip()


def differences(inventory: Inventory, committed: str, *, title: str = "Environment variables") -> str:
    """A unified diff from the committed page to the one the inventory makes; empty when they are the same."""
    return "".join(
        difflib.unified_diff(
            committed.splitlines(True),
            render(inventory, title=title).splitlines(True),
            "committed",
            "from the inventory",
        )
    )
