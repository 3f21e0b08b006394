"""The check as a test: one line in a project's test suite.

from omni_envinventory.testing import assert_inventory

def test_environment_variables():
    assert_inventory("envinventory.toml")
"""

from __future__ import annotations

from pathlib import Path

from .check import CheckResult, check
from .check.output import plain
from .loading import load_inventory
from .reference import differences


def assert_inventory(inventory: str | Path, *, root: str | Path | None = None, docs: bool = True) -> CheckResult:
    """Fail with every finding, as plain lines, when a project disagrees with its inventory.

    Args:
        inventory: The inventory's file.
        root: Where its paths start; its folder by default.
        docs: Whether the reference page must also be the one the inventory makes.

    Returns:
        The result, for further questions.

    Raises:
        AssertionError: Something was found, or the page is outdated.
        InventoryError: The inventory says something it must not.
    """
    known = load_inventory(inventory)
    folder = Path(inventory).parent if root is None else Path(root)
    result = check(known, folder)
    if result.findings:
        raise AssertionError(f"{len(result.findings)} findings\n{plain(result.findings)}")
    # The check itself only asks for the exact page when it carries the notice of a generated one.
    if docs and known.project.reference is not None:
        page = folder / known.project.reference
        changed = differences(known, page.read_text("utf-8"))
        if changed:
            raise AssertionError(f"{page} is not what the inventory makes\n{changed}")
    return result
