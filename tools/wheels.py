"""Build every wheel, install each alone in a fresh venv, and use it there as a stranger would.

    python tools/wheels.py [--tests] [distribution ...]

For each distribution: the wheel installs with nothing beside its declared dependencies (at the locked versions), its
command answers ``--version``, and the first ``python`` block of its README's Quickstart runs in an empty folder. With
``--tests`` pytest joins the venv and the package's own tests run against the installed wheel.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEMBERS = [*sorted((ROOT / "packages").iterdir()), ROOT / "integration"]

QUICKSTART = re.compile(r"^## Quickstart\n.*?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


class SmokeError(Exception):
    """A wheel that does not do alone what its README says."""


@dataclass(frozen=True)
class Distribution:
    """One member of the workspace.

    Attributes:
        folder: Where its pyproject.toml is.
        name: The distribution's name.
        commands: Its console scripts.
    """

    folder: Path
    name: str
    commands: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> Distribution:
        """Read a member's pyproject.toml."""
        project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
        return cls(folder, project["name"], tuple(project.get("scripts", {})))

    def quickstart(self) -> str:
        """The code that the README promises to run. Raises SmokeError when there is none."""
        found = QUICKSTART.search((self.folder / "README.md").read_text())
        if found is None:
            raise SmokeError(f"{self.name}: README.md has no python block under '## Quickstart'")
        return found["code"]


def run(command: list[str], *, cwd: Path, env: dict[str, str] | None = None) -> None:
    """Run a command and show its output only when it fails."""
    done = subprocess.run(command, cwd=cwd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        raise SmokeError(f"exit {done.returncode}: {' '.join(command)}\n{done.stdout}")


def smoke(distribution: Distribution, dist: Path, constraints: Path, overrides: Path, *, with_tests: bool) -> None:
    """Install one wheel alone and use it; raises SmokeError at the first thing that fails."""
    stem = distribution.name.replace("-", "_")
    (wheel,) = dist.glob(f"{stem}-*.whl")
    with tempfile.TemporaryDirectory(prefix=f"smoke-{distribution.name}-") as folder:
        base = Path(folder)
        empty = base / "empty"
        empty.mkdir()
        venv = base / "venv"
        env = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
        env["HOME"] = str(empty)
        run(["uv", "venv", "--quiet", "--python", sys.executable, str(venv)], cwd=base)
        pins = ["--constraint", str(constraints), "--override", str(overrides), "--find-links", str(dist)]
        install = ["uv", "pip", "install", "--quiet", "--python", str(venv / "bin/python"), *pins]
        run([*install, str(wheel)], cwd=base)
        run([*install, "--reinstall", "--no-deps", str(wheel)], cwd=base)
        for command in distribution.commands:
            run([str(venv / "bin" / command), "--version"], cwd=empty, env=env)
            run([str(venv / "bin" / command), "--help"], cwd=empty, env=env)
        script = base / "quickstart.py"
        script.write_text(distribution.quickstart())
        run([str(venv / "bin/python"), str(script)], cwd=empty, env=env)
        if with_tests:
            run([*install, "pytest"], cwd=base)
            tests = distribution.folder / "tests"
            command = [str(venv / "bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)]
            status = subprocess.run(command, cwd=ROOT, env=env).returncode
            if status != 0:
                raise SmokeError(f"{distribution.name}: its tests fail in a venv of its own (exit {status})")


def main() -> int:
    """Smoke the named distributions, or all; 0 when every one held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="distributions (default: all)")
    parser.add_argument("--tests", action="store_true", help="run each package's tests in its own venv too")
    options = parser.parse_args()
    known = {found.name: found for found in map(Distribution.read, MEMBERS)}
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"unknown distribution {unknown[0]!r}; known: {', '.join(known)}")
    failed = False
    with tempfile.TemporaryDirectory(prefix="wheels-") as folder:
        base = Path(folder)
        dist = base / "dist"
        run(["uv", "build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(dist)], cwd=ROOT)
        constraints = base / "constraints.txt"
        export = ["uv", "export", "--quiet", "--locked", "--all-packages", "--all-extras", "--no-emit-workspace"]
        run([*export, "--no-hashes", "--output-file", str(constraints)], cwd=ROOT)
        overrides = base / "overrides.txt"
        workspace = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]
        overrides.write_text("\n".join(workspace["override-dependencies"]) + "\n")
        for name in options.names or known:
            try:
                smoke(known[name], dist, constraints, overrides, with_tests=options.tests)
            except SmokeError as error:
                failed = True
                print(f"FAIL {name}: {error}", flush=True)
            else:
                print(f"ok   {name}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
