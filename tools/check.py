"""The test command: format, lint, types, import contracts, every test, and each wheel alone in a fresh venv.

    uv run --locked --all-packages --all-extras --group dev python tools/check.py [step ...]

Steps run in this order and all of them run even when one fails, so that one call shows everything; the exit status
says whether all held.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEMBERS = [*sorted((ROOT / "packages").iterdir()), ROOT / "integration"]
SOURCES = [str(path.relative_to(ROOT)) for member in MEMBERS for path in sorted((member / "src").iterdir())]

STEPS: dict[str, list[str]] = {
    "format": ["ruff", "format", "--check", "."],
    "lint": ["ruff", "check", "."],
    "types": ["mypy", *SOURCES],
    "imports": ["lint-imports"],
    "lock": ["uv", "lock", "--check"],
    "wheels": [sys.executable, "tools/wheels.py"],
}
# A process for each distribution's tests: what one of them does to its process is no other's business.
STEPS |= {
    f"tests of {member.name}": [sys.executable, "-m", "pytest", str(member.relative_to(ROOT) / "tests")]
    for member in MEMBERS
}


def main(names: list[str]) -> int:
    """Run the named steps, or all; 0 when every one held."""
    unknown = [name for name in names if name not in STEPS]
    if unknown:
        print(f"unknown step {unknown[0]!r}; steps: {', '.join(STEPS)}", file=sys.stderr)
        return 2
    outcome: dict[str, tuple[int, float]] = {}
    for name in names or list(STEPS):
        print(f"\n=== {name}: {' '.join(STEPS[name])}", flush=True)
        started = time.monotonic()
        status = subprocess.run(STEPS[name], cwd=ROOT).returncode
        outcome[name] = (status, time.monotonic() - started)
    print()
    for name, (status, seconds) in outcome.items():
        print(f"{'ok  ' if status == 0 else 'FAIL'} {name} ({seconds:.0f} s)")
    return 0 if all(status == 0 for status, _ in outcome.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
