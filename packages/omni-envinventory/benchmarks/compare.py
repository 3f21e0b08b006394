"""Time and completeness of the scan, beside other tools that look for environment variables in Python sources.

    python benchmarks/compare.py [--quick] [--json]

Everything runs on one core, each tool in a process of its own, interleaved; the table shows medians and ratios of this
run. Peers (the ``bench`` dependency group) are found beside the running interpreter or on the path; one that is missing
or takes too long is listed as such.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

FILES = 1600
LIMIT_S = 20.0
"""A tool that takes longer over a tree is stopped; its time then reads as at least this."""

TREES = ("transformers", "diffusers", "huggingface_hub")

FORMS: dict[str, str] = {
    "P_DIRECT": "import os\nos.environ['P_DIRECT']",
    "P_GETENV": "import os\nos.getenv('P_GETENV')",
    "P_IMPORTED": "from os import environ\nenviron.get('P_IMPORTED')",
    "P_ALIAS": "import os\ne = os.environ\ne['P_ALIAS']",
    "P_BOUND": "import os\ng = os.environ.get\ng('P_BOUND')",
    "P_KEYWORD": "import os\nos.getenv(key='P_KEYWORD')",
    "P_BYTES": "import os\nos.environb[b'P_BYTES']",
    "P_MEMBER": "import os\n'P_MEMBER' in os.environ",
    "P_POPPED": "import os\nos.environ.pop('P_POPPED', None)",
    "P_CONSTANT": "import os\nK = 'P_CONSTANT'\nos.getenv(K)",
    "P_CLASS": "import os\nclass C:\n    K = 'P_CLASS'\nos.getenv(C.K)",
    "P_WRAPPED": "import os\ndef raw(n): return os.getenv(n)\ndef flag(k): return raw(k)\nflag('P_WRAPPED')",
    "P_METHOD": "import os\nclass R:\n    def get(self, k): return os.getenv('P_' + k)\nR().get('METHOD')",
    "P_LOOP": "import os\nfor s in ('LOOP',): os.getenv(f'P_{s}')",
    "P_FORMAT": "import os\nos.getenv('P_%s' % 'FORMAT')",
    "P_EXPANDED": "import os\nos.path.expandvars('${P_EXPANDED}')",
    "P_CHILD": "import subprocess\nsubprocess.run(['x'], env={'P_CHILD': '1'})",
    "P_CLICK": "import click\n@click.option('--x', envvar='P_CLICK')\ndef f(x): pass",
    "P_STORE__PATH": (
        "from pydantic import BaseModel\nfrom pydantic_settings import BaseSettings, SettingsConfigDict\n"
        "class S(BaseModel):\n    path: str\nclass M(BaseSettings):\n"
        "    model_config = SettingsConfigDict(env_prefix='P_', env_nested_delimiter='__')\n    store: S\n"
    ),
    "P_REGISTRY": "import os\nV = {'P_REGISTRY': lambda: os.getenv('P_REGISTRY')}\ndef __getattr__(n): return V[n]()",
}


@dataclass(frozen=True)
class Tool:
    """One tool and the command that lists what it finds below a folder."""

    name: str
    command: tuple[str, ...]


def find_tools(empty: Path) -> tuple[list[Tool], dict[str, str]]:
    """The tools that are installed, and why others are not compared."""
    ours = (sys.executable, "-m", "omni_envinventory", "scan", "--names", "{}")
    tools, missing = [Tool("omni-envinventory", ours)], {}
    peers = {
        "envsleuth": ("scan", "--env", str(empty), "--json", "--path", "{}"),
        "envdoc": ("scan", "{}"),
    }
    for name, arguments in peers.items():
        beside = Path(sys.executable).with_name(name)
        found = str(beside) if beside.exists() else shutil.which(name)
        if found is None:
            missing[name] = "not installed; it is in the bench dependency group"
        else:
            tools.append(Tool(name, (found, *arguments)))
    return tools, missing


def run(tool: Tool, folder: Path) -> tuple[float, str]:
    """Seconds a tool takes over a folder, and what it prints."""
    command = [part.replace("{}", str(folder)) for part in tool.command]
    started = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return LIMIT_S, ""
    return time.monotonic() - started, done.stdout


def sample_tree(target: Path, files: int) -> str:
    """Copy ``files`` files of installed packages, keeping their folders; gives where they came from."""
    copied, sources = 0, []
    for name in TREES:
        spec = importlib.util.find_spec(name)
        if spec is None or not spec.submodule_search_locations or copied >= files:
            continue
        root = Path(next(iter(spec.submodule_search_locations)))
        sources.append(f"{name} {version(name)}")
        for path in sorted(root.rglob("*.py")):
            if copied >= files:
                break
            place = target / name / path.relative_to(root)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, place)
            copied += 1
    while copied < files:
        (target / f"made{copied}.py").write_text(
            "import os\n" + "def f(x):\n    return x + 1\n" * 100 + f"os.getenv('N{copied}')\n"
        )
        copied += 1
    return ", ".join(sources) or "made-up files"


def installed(name: str) -> str:
    """A package's version, or that it is missing."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "-"


def timing(tools: list[Tool], tree: Path, rounds: int) -> list[dict[str, Any]]:
    """Median seconds of each tool over the tree, interleaved."""
    times: dict[str, list[float]] = {tool.name: [] for tool in tools}
    for _ in range(rounds):
        for tool in tools:
            if LIMIT_S not in times[tool.name]:
                times[tool.name].append(run(tool, tree)[0])
    base = statistics.median(times[tools[0].name])
    rows: list[dict[str, Any]] = []
    for name, taken in times.items():
        stopped = LIMIT_S in taken
        seconds = LIMIT_S if stopped else statistics.median(taken)
        rows.append({"tool": name, "seconds": round(seconds, 2), "ratio": round(seconds / base, 2), "stopped": stopped})
    return rows


def completeness(tools: list[Tool], folder: Path) -> list[dict[str, Any]]:
    """How many of the forms each tool names."""
    outputs: dict[str, set[str]] = {tool.name: set() for tool in tools}
    for name, source in FORMS.items():
        place = folder / name.lower()
        place.mkdir()
        (place / "program.py").write_text(source)
        for tool in tools:
            if name in run(tool, place)[1]:
                outputs[tool.name].add(name)
    return [{"tool": tool, "forms_found": len(found), "of": len(FORMS)} for tool, found in outputs.items()]


def cached(tree: Path, folder: Path, rounds: int) -> tuple[float, float, int]:
    """Median seconds without and with a cache after one file changed, and how many files were then parsed."""
    from omni_envinventory import scan

    cache, plain, again, parsed = folder / "cache.json", [], [], 0
    changed = next(tree.rglob("*.py"))
    scan([tree], base=tree, cache=cache)
    for number in range(rounds):
        plain.append(scan([tree], base=tree).statistics.seconds)
        with changed.open("a") as stream:
            stream.write(f"\n# change {number}\n")
        statistics_ = scan([tree], base=tree, cache=cache).statistics
        again.append(statistics_.seconds)
        parsed = statistics_.parsed
    return statistics.median(plain), statistics.median(again), parsed


def reads_per_file(tree: Path) -> float:
    """How often the most-read file is opened during one scan."""
    program = (
        "import sys, collections\nfrom omni_envinventory import scan\nroot = sys.argv[1]\nn = collections.Counter()\n"
        "def hook(event, given):\n    if event == 'open' and str(given[0]).startswith(root): n[str(given[0])] += 1\n"
        "sys.addaudithook(hook)\nscan([root])\nprint(max(n.values()))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tree)], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> int:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    parser.add_argument("--quick", action="store_true", help="one round: under a minute")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rounds = 1 if options.quick else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        empty = folder / "empty.env"
        empty.write_text("")
        tools, missing = find_tools(empty)
        tree = folder / "tree"
        source = sample_tree(tree, FILES)
        forms = folder / "forms"
        forms.mkdir()
        timed, found = timing(tools, tree, rounds), completeness(tools, forms)
        plain_s, cached_s, parsed = cached(tree, folder, rounds)
        reads = reads_per_file(tree)
    ours = timed[0]["seconds"]
    bars = [
        {"name": f"{FILES} files, one core, seconds", "value": ours, "target": 5.0, "holds": ours < 5.0},
        {
            "name": "after one change, with cache, against without",
            "value": round(cached_s / plain_s, 2), "target": 1.0, "holds": cached_s < plain_s,
        },
        {"name": "opens of any file in one scan", "value": reads, "target": 1.0, "holds": reads <= 1.0},
    ]  # fmt: skip
    document = {
        "machine": {"cpu": platform.machine(), "cores": os.cpu_count(), "used": 1, "system": platform.system()},
        "versions": {"python": platform.python_version(), **{t.name: installed(t.name) for t in tools}},
        "results": {
            "tree": source, "files": FILES, "rounds": rounds, "time": timed, "forms": found,
            "uncached_s": round(plain_s, 2), "cached_s": round(cached_s, 2), "parsed_with_cache": parsed,
            "seconds_per_1000_files": round(ours / FILES * 1000, 2), "not_compared": missing,
        },
        "bars": bars,
    }  # fmt: skip
    if options.json:
        print(json.dumps(document, indent=2))
        return 0
    print(
        f"{FILES} files of {source}; one of {os.cpu_count()} cores; Python {platform.python_version()}; {rounds} rounds"
    )
    print(f"{'tool':<20} {'seconds':>8} {'ratio':>6} {'forms':>8}")
    for row, forms_row in zip(timed, found):
        mark = ">" if row["stopped"] else " "
        found_of = f"{forms_row['forms_found']:>4}/{forms_row['of']}"
        print(f"{row['tool']:<20} {mark}{row['seconds']:>7} {mark}{row['ratio']:>5} {found_of}")
    print(f"in-process: {plain_s:.2f} s without a cache, {cached_s:.2f} s after one change with one ({parsed} parsed)")
    for peer, reason in missing.items():
        print(f"not compared: {peer}: {reason}")
    for bar in bars:
        print(f"{'holds' if bar['holds'] else 'FAILS'}: {bar['name']}: {bar['value']} (target {bar['target']})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
