"""The check: everything the code, the inventory, the reference page and the deployment files disagree on."""

from __future__ import annotations

import datetime as dt
import glob
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_envinventory.model import Inventory
from omni_envinventory.reference import NOTICE, differences, page_title
from omni_envinventory.scan import ScanResult, scan

from . import rules
from .findings import Finding, Rule
from .mentions import Mention, find_mentions
from .page import documented_names

__all__ = ["CheckResult", "Finding", "Mention", "Rule", "check", "find_mentions", "scan_project"]


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What a check found.

    Attributes:
        findings: What is wrong, in order of rule and place; empty when all is well.
        scan: The scan behind it.
    """

    findings: tuple[Finding, ...]
    scan: ScanResult

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """The result in the documented JSON form."""
        return {
            "schema": "omni-envinventory/check/1",
            "ok": self.ok,
            "findings": [finding.to_json() for finding in self.findings],
            "files": self.scan.statistics.files,
            "names": list(self.scan.names),
            "patterns": list(self.scan.patterns),
            "dynamic": len(self.scan.dynamic),
        }


def _expand(root: Path, patterns: tuple[str, ...]) -> list[Path]:
    found: dict[str, None] = {}
    for pattern in patterns:
        found.update(dict.fromkeys(sorted(glob.glob(pattern, root_dir=root, recursive=True))))
    return [root / name for name in found]


def scan_project(inventory: Inventory, root: Path, *, cache: Path | None = None) -> ScanResult:
    """Scan what an inventory declares as the project's sources.

    Raises:
        SourceNotFoundError: A declared source does not exist.
    """
    paths = _expand(root, inventory.project.sources)
    return scan(paths, base=root, exclude=inventory.project.exclude, cache=cache)


def check(
    inventory: Inventory,
    root: str | Path,
    *,
    result: ScanResult | None = None,
    baseline: Inventory | None = None,
    today: dt.date | None = None,
    cache: Path | None = None,
) -> CheckResult:
    """Hold a project against its inventory.

    Args:
        inventory: What is known.
        root: The folder that the inventory's paths start from.
        result: A scan to use instead of scanning the declared sources.
        baseline: An older inventory whose list of grandfathered names must not have grown.
        today: The date for ``until``.
        cache: Where scans keep their reductions.

    Raises:
        SourceNotFoundError: A declared source does not exist.
    """
    base = Path(root)
    found: list[Finding] = []
    if result is None:
        for pattern in inventory.project.sources or ("",):
            if not pattern or not _expand(base, (pattern,)):
                message = f"nothing to scan: sources = {pattern!r} matches nothing below {base}"
                found.append(Finding(Rule.NO_SOURCES, message, "", inventory.source))
        result = scan_project(inventory, base, cache=cache)
    found += rules.unclassified(inventory, result)
    found += rules.never_read(inventory, result)
    found += rules.dynamic(inventory, result)
    found += rules.lifecycle(inventory, result, today or dt.date.today())
    found += rules.house_rules(inventory, baseline)
    mentions: list[Mention] = []
    for path in _expand(base, inventory.project.mentions):
        if path.is_file():
            shown = path.relative_to(base).as_posix()
            mentions += find_mentions(path.read_text("utf-8", "replace"), shown)
    found += rules.mentioned(inventory, mentions)
    if inventory.project.reference is not None:
        found += _reference(inventory, base, result)
    return CheckResult(tuple(dict.fromkeys(found)), result)


def _reference(inventory: Inventory, base: Path, result: ScanResult) -> list[Finding]:
    shown = inventory.project.reference or ""
    try:
        text = (base / shown).read_text("utf-8")
    except FileNotFoundError:
        return [Finding(Rule.UNDOCUMENTED, "there is no reference page; write it with the docs command", "", shown)]
    found = list(rules.reference(inventory, documented_names(text), shown, result))
    if not found and NOTICE in text and differences(inventory, text, title=page_title(text)):
        message = "the generated reference page is not what the inventory makes; write it again with the docs command"
        found.append(Finding(Rule.PAGE_OUTDATED, message, "", shown))
    return found
