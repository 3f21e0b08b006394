"""Real source trees: nothing crashes, everything found is a name, a pattern or dynamic, and nothing is passed over."""

from __future__ import annotations

import ast
import importlib.util
import os
import warnings
from pathlib import Path

import pytest

from omni_envinventory import ScanResult, scan

CALLS = ("os.getenv", "os.environ.get", "os.environ.pop", "os.environ.setdefault")
TREES = ["huggingface_hub", "diffusers", "transformers", "ray", "torch"]


def plain_uses(path: Path) -> set[int]:
    """Lines that spell an access in full; a much simpler reading than the scan's, to hold against it."""
    found: set[int] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            return found
    for node in ast.walk(tree):
        direct = isinstance(node, ast.Subscript) and ast.unparse(node.value) == "os.environ"
        if direct or (isinstance(node, ast.Call) and ast.unparse(node.func) in CALLS):
            found.add(node.lineno)
    return found


def judge(root: Path, result: ScanResult) -> None:
    seen: set[tuple[str, str]] = set()
    lines: set[tuple[str, int]] = set()
    for access in result.accesses:
        assert access.dynamic or access.name, access
        assert access.place.line >= 1
        for place in (access.place, access.via):
            if place is not None:
                seen.add((place.path, place.scope))
                lines.add((place.path, place.line))
    passed_over = []
    for path in root.rglob("*.py"):
        if b"os." not in path.read_bytes():
            continue
        shown = os.path.relpath(path, root)
        scopes = {scope for file, scope in seen if file == shown}
        passed_over += [f"{shown}:{line}" for line in plain_uses(path) if (shown, line) not in lines and not scopes]
    assert not passed_over


@pytest.mark.limit_s(240)
@pytest.mark.slow
@pytest.mark.parametrize("name", TREES)
def test_installed_package(name: str) -> None:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"waits for {name} to be installed")
    root = Path(next(iter(spec.submodule_search_locations)))
    result = scan([root], base=root)
    assert len(result.names) > 20
    judge(root, result)


@pytest.mark.limit_s(240)
@pytest.mark.slow
def test_standard_library() -> None:
    root = Path(os.__file__).parent
    result = scan(
        [root], base=root, exclude=["test/*", "*/test/*", "*/tests/*", "idlelib/*", "lib2to3/*", "ensurepip/*"]
    )
    assert {"BROWSER", "TMPDIR", "PYTHONUSERBASE"} <= set(result.names)
    assert not [access for access in result.accesses if access.name == ""]
