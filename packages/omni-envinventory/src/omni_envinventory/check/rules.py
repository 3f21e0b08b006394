"""The rules: pure functions from an inventory, a scan, and texts already read, to findings."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Sequence

from omni_envinventory.model import Inventory, Lifecycle, Variable
from omni_envinventory.near import Origin, origin
from omni_envinventory.scan.result import Access, Operation, ScanResult, covers

from .findings import Finding, Rule
from .mentions import Mention
from .waivers import match_waivers


def _owned(inventory: Inventory) -> list[str]:
    return [variable.name for variable in inventory.everything() if variable.lifecycle is not Lifecycle.REMOVED]


def unclassified(inventory: Inventory, result: ScanResult) -> Iterator[Finding]:
    """Names and patterns that the code touches and no record covers; each name once, at its first place."""
    names = _owned(inventory)
    prefixes = inventory.prefixes()
    seen: set[str] = set()
    for access in result.accesses:
        name = access.name
        if name is None or name == "*" or name in seen or inventory.find(name) is not None:
            continue
        seen.add(name)
        kind, meant = origin(name, None, names)
        near = kind is Origin.TYPO and (name.startswith(prefixes) or not prefixes)
        rule = Rule.NEAR_MISS if near else Rule.UNCLASSIFIED
        what = "pattern " if access.pattern else ""
        message = f"{_verb(access)} {what}{name}, which the inventory does not have"
        yield Finding(rule, message, name, access.place.path, access.place.line, meant if near else None)


def _verb(access: Access) -> str:
    return {
        Operation.READ: "reads",
        Operation.WRITE: "sets",
        Operation.DELETE: "removes",
        Operation.MEMBERSHIP: "tests for",
        Operation.BULK: "uses",
    }[access.operation]


def never_read(inventory: Inventory, result: ScanResult) -> Iterator[Finding]:
    """Records that nothing in the code touches; tombstones of removed names are left alone."""
    touched = {access.name for access in result.accesses if access.name is not None}
    waived = {name for waiver in inventory.waivers for name in waiver.names}
    for variable in inventory:
        if variable.lifecycle is Lifecycle.REMOVED:
            continue
        if any(variable.covers(name) for name in (*touched, *waived)) or _waived(inventory, variable.name):
            continue
        wide = any(access.pattern and access.name != "*" and _wide(access, variable) for access in result.accesses)
        if not wide:
            message = f"{variable.name} is in the inventory, but nothing reads it"
            yield Finding(Rule.NEVER_READ, message, variable.name, variable.source, variable.line)


def _wide(access: Access, variable: Variable) -> bool:
    return access.name is not None and covers(access.name, variable.name)


def dynamic(inventory: Inventory, result: ScanResult) -> Iterator[Finding]:
    """Accesses under computed names that no waiver covers, and waivers that cover nothing any more."""
    open_places, stale = match_waivers(inventory.waivers, result.dynamic)
    for access in open_places:
        via = f" (through {access.via})" if access.via is not None else ""
        reason = access.detail or "the name is computed"
        message = f"{access.form} in {access.place.scope}: {reason}{via}; waive it with a reason"
        yield Finding(Rule.DYNAMIC, message, "", access.place.path, access.place.line)
    for waiver in stale:
        message = f"the waiver for {waiver.scope} in {waiver.path} covers no dynamic access any more"
        yield Finding(Rule.STALE_WAIVER, message, "", inventory.source, waiver.line)


def lifecycle(inventory: Inventory, result: ScanResult, today: dt.date) -> Iterator[Finding]:
    """Deprecated names past their date or version, and removed names that are still touched."""
    for variable in inventory:
        if (
            variable.lifecycle is Lifecycle.DEPRECATED
            and variable.until
            and _past(variable.until, today, inventory.project.version)
        ):
            message = f"{variable.name} was to be gone by {variable.until}"
            yield Finding(Rule.EXPIRED, message, variable.name, variable.source, variable.line)
        if variable.lifecycle is Lifecycle.REMOVED:
            for access in result.of(variable.name):
                message = f"{variable.name} was removed and is still touched; use {variable.replacement}"
                yield Finding(Rule.REMOVED_USED, message, variable.name, access.place.path, access.place.line)
                break


def _past(until: str, today: dt.date, version: str | None) -> bool:
    try:
        return today >= dt.date.fromisoformat(until)
    except ValueError:
        return version is not None and _numbers(version) >= _numbers(until)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


def house_rules(inventory: Inventory, baseline: Inventory | None) -> Iterator[Finding]:
    """Required prefixes, the shrinking list of exceptions, and counts per category."""
    rules, source = inventory.rules, inventory.source
    if rules.required_prefixes:
        for variable in inventory:
            fits = variable.name.startswith(rules.required_prefixes)
            if variable.category == "public" and not fits and variable.name not in rules.grandfathered:
                message = f"new public name {variable.name} must start with {' or '.join(rules.required_prefixes)}"
                yield Finding(Rule.PREFIX, message, variable.name, variable.source, variable.line)
    for name in rules.grandfathered:
        record = inventory.own(name)
        if record is None or record.category != "public" or name.startswith(rules.required_prefixes or "\0"):
            message = f"{name} no longer needs to be grandfathered; take it off the list"
            yield Finding(Rule.GRANDFATHERED, message, name, source, 0)
    if baseline is not None:
        for name in rules.grandfathered:
            if name not in baseline.rules.grandfathered:
                message = f"{name} was added to the grandfathered names; that list may only shrink"
                yield Finding(Rule.GRANDFATHERED, message, name, source, 0)
    counted = inventory.counts()
    for category, expected in rules.counts.items():
        actual = counted.get(category, 0)
        if actual != expected:
            message = f"{actual} {category} names where rules.counts says {expected}; growth is a decision: change both"
            yield Finding(Rule.COUNTS, message, "", source, 0)


def mentioned(inventory: Inventory, mentions: Sequence[Mention]) -> Iterator[Finding]:
    """Names that deployment files set and nobody knows."""
    names = _owned(inventory)
    seen: set[tuple[str, str, str | None]] = set()
    for mention in mentions:
        record = inventory.find(mention.name)
        key = (mention.path, mention.name, mention.stage)
        if key in seen:
            continue
        seen.add(key)
        if record is not None:
            if record.lifecycle is Lifecycle.REMOVED:
                message = f"{mention.name} was removed; use {record.replacement}"
                yield Finding(Rule.REMOVED_USED, message, mention.name, mention.path, mention.line)
            if mention.stage is not None and record.stages is not None and mention.stage not in record.stages:
                allowed = ", ".join(record.stages) or "no stage"
                message = f"stage {mention.stage}: {mention.name} may be set for {allowed} only"
                yield Finding(Rule.STAGE_ENV, message, mention.name, mention.path, mention.line)
            continue
        kind, meant = origin(mention.name, mention.value, names)
        if kind in (Origin.SERVICE_LINK, Origin.IMAGE_BUILD):
            continue
        rule = (
            Rule.STAGE_ENV
            if mention.stage is not None
            else Rule.NEAR_MISS
            if kind is Origin.TYPO
            else Rule.MENTIONED_UNKNOWN
        )
        message = f"{mention.where} sets {mention.name}, which the inventory does not have"
        yield Finding(rule, message, mention.name, mention.path, mention.line, meant)


def reference(
    inventory: Inventory, page: Iterable[tuple[str, int]], path: str, result: ScanResult
) -> Iterator[Finding]:
    """Public names that the reference page lacks, and names on the page that are not public or that nobody reads."""
    listed = dict(page)
    for variable in inventory:
        if variable.category == "public" and variable.name not in listed:
            message = f"{variable.name} is public but not on the reference page {path}"
            yield Finding(Rule.UNDOCUMENTED, message, variable.name, variable.source, variable.line)
    for name, line in listed.items():
        record = inventory.own(name)
        if record is None or record.category != "public":
            _, meant = origin(name, None, _owned(inventory))
            message = f"the reference page names {name}, which is no public name of the inventory"
            yield Finding(Rule.DOCUMENTED_UNKNOWN, message, name, path, line, meant)
        elif (
            record.lifecycle is not Lifecycle.REMOVED
            and not any(True for _ in result.of(name))
            and not _waived(inventory, name)
        ):
            message = f"the reference page names {name}, but nothing reads it"
            yield Finding(Rule.DOCUMENTED_UNKNOWN, message, name, path, line)


def _waived(inventory: Inventory, name: str) -> bool:
    return any(covers(allowed, name) for waiver in inventory.waivers for allowed in waiver.names)
