"""The package needs the standard library and nothing else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import omni_envinventory

SOURCE = Path(omni_envinventory.__file__).parent


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.partition(".")[0])
    return found


def test_sources_import_the_standard_library_only() -> None:
    outside = {p.name: imported(p) - sys.stdlib_module_names - {"omni_envinventory"} for p in SOURCE.rglob("*.py")}
    assert {name: modules for name, modules in outside.items() if modules} == {}


def test_it_runs_where_nothing_is_installed(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("import os\nos.getenv('A')")
    program = (
        f"import sys\nsys.path.insert(0, {str(SOURCE.parent)!r})\n"
        "from omni_envinventory.cli import main\nstatus = main(['scan', '--names', 'app.py'])\n"
        "outside = {m for m in sys.modules if m.partition('.')[0] not in sys.stdlib_module_names}\n"
        "outside = {m for m in outside if m.partition('.')[0] not in ('omni_envinventory', '__main__')}\n"
        "assert not outside, outside\nsys.exit(status)"
    )
    command = [sys.executable, "-I", "-S", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "A\n"), done.stderr


def test_every_public_name_is_exported_and_documented() -> None:
    for name in omni_envinventory.__all__:
        assert getattr(omni_envinventory, name).__doc__, name
