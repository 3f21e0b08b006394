"""How findings are shown: a table for people, plain lines for CI, annotations for GitHub, JSON for machines."""

from __future__ import annotations

import json
from collections.abc import Sequence

from . import CheckResult
from .findings import Finding


def table(findings: Sequence[Finding]) -> str:
    """Findings in columns: rule, place, what is wrong."""
    rows = [(str(finding.rule), finding.where or "-", finding.text) for finding in findings]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)] if rows else [0, 0]
    return "\n".join(f"{rule:<{widths[0]}}  {where:<{widths[1]}}  {text}" for rule, where, text in rows)


def plain(findings: Sequence[Finding]) -> str:
    """One ``path:line: rule: message`` a line, as compilers write."""
    return "\n".join(f"{finding.where or '-'}: {finding.rule}: {finding.text}" for finding in findings)


def _escape(text: str, *, attribute: bool) -> str:
    text = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return text.replace(":", "%3A").replace(",", "%2C") if attribute else text


def github(findings: Sequence[Finding]) -> str:
    """Workflow commands that GitHub Actions shows beside the line (docs.github.com, "Workflow commands")."""
    lines: list[str] = []
    for finding in findings:
        attributes = [f"file={_escape(finding.path, attribute=True)}"] if finding.path else []
        attributes += [f"line={finding.line}"] if finding.line else []
        attributes.append(f"title=omni-envinventory {finding.rule}")
        lines.append(f"::error {','.join(attributes)}::{_escape(finding.text, attribute=False)}")
    return "\n".join(lines)


def as_json(result: CheckResult) -> str:
    """The documented JSON form."""
    return json.dumps(result.to_json(), indent=2, ensure_ascii=True)


def summary(result: CheckResult) -> str:
    """One closing sentence."""
    looked = (
        f"{result.scan.statistics.files} files, {len(result.scan.names)} names, {len(result.scan.patterns)} patterns"
    )
    if result.ok:
        return f"The inventory holds: {looked}, nothing to report."
    number = len(result.findings)
    return f"{number} finding{'s' if number != 1 else ''} in {looked}."
