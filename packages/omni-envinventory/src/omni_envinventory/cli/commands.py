"""What each command does, given parsed arguments."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path

from omni_envinventory.check import check, output, scan_project
from omni_envinventory.collect import (
    Fingerprinter,
    as_json,
    collect,
    default_key_path,
    diff,
    diff_text,
    of_process,
    read_snapshot,
    this_process,
)
from omni_envinventory.collect.masking import escape
from omni_envinventory.errors import InventoryNotFoundError
from omni_envinventory.loading import BUILTIN, load_inventory
from omni_envinventory.model import Inventory
from omni_envinventory.reference import differences, render
from omni_envinventory.scan import ScanResult, scan

DEFAULT_NAME = "envinventory.toml"


def find_inventory(start: Path) -> Path | None:
    """The nearest ``envinventory.toml``, here or in a folder above."""
    return next(
        (folder / DEFAULT_NAME for folder in (start, *start.parents) if (folder / DEFAULT_NAME).is_file()), None
    )


def _load(options: Namespace) -> tuple[Inventory, Path]:
    """The inventory asked for and the folder its paths start from."""
    given: str | None = options.inventory
    if given is None:
        found = find_inventory(Path.cwd())
        if found is None:
            raise InventoryNotFoundError(f"{Path.cwd() / DEFAULT_NAME} or above; name one with --inventory")
        return load_inventory(found), found.parent
    return load_inventory(given), Path.cwd() if given in BUILTIN else Path(given).parent


def _path(given: str | None) -> Path | None:
    return None if given is None else Path(given)


def run_scan(options: Namespace) -> int:
    """``scan``: exit 1 when something is dynamic and nothing else was asked for."""
    paths = list(options.paths)
    if not paths and (options.inventory is not None or find_inventory(Path.cwd()) is not None):
        inventory, root = _load(options)
        result = scan_project(inventory, root, cache=_path(options.cache))
    else:
        result = scan(paths or ["."], exclude=options.exclude, cache=_path(options.cache))
    if options.json:
        print(json.dumps(result.to_json(), indent=2))
    elif options.names:
        print("\n".join((*result.names, *result.patterns)))
    else:
        _print_scan(result, only_dynamic=options.dynamic)
    return 0


def _print_scan(result: ScanResult, *, only_dynamic: bool) -> None:
    chosen = [access for access in result.accesses if access.dynamic or not only_dynamic]
    width = max((len(access.name or "(dynamic)") for access in chosen), default=0)
    for access in chosen:
        name = escape(access.name) if access.name is not None else "(dynamic)"
        remarks = [f"through {access.via}"] if access.via is not None else []
        remarks += [access.detail] if access.detail else []
        remark = f"  ({'; '.join(remarks)})" if remarks else ""
        print(f"{name:<{width}}  {access.operation:<10}  {access.when:<6}  {access.place}  {access.form}{remark}")
    for unparsed in result.unparsed:
        print(f"{unparsed.path}:{unparsed.line}: not read: {unparsed.reason}", file=sys.stderr)
    statistics = result.statistics
    print(
        f"{len(result.names)} names, {len(result.patterns)} patterns, {len(result.dynamic)} dynamic, "
        f"{statistics.files} files in {statistics.seconds:.1f} s",
        file=sys.stderr,
    )


def run_check(options: Namespace) -> int:
    """``check``: exit 1 with what was found."""
    inventory, folder = _load(options)
    root = _path(options.root) or folder
    baseline = load_inventory(options.against) if options.against else None
    result = check(inventory, root, baseline=baseline, cache=_path(options.cache))
    if options.json:
        print(output.as_json(result))
        return 0 if result.ok else 1
    if result.findings:
        print(output.plain(result.findings) if options.plain or options.github else output.table(result.findings))
    if options.github and result.findings:
        print(output.github(result.findings))
    print(output.summary(result), file=sys.stderr)
    return 0 if result.ok else 1


def run_collect(options: Namespace) -> int:
    """``collect``: the report, or a snapshot as JSON; exit 1 when the environment is unavailable."""
    try:
        inventory: Inventory = _load(options)[0]
    except InventoryNotFoundError:
        if options.inventory is not None:
            raise
        inventory = load_inventory("vllm-omni")
    environment = this_process() if options.pid is None else of_process(options.pid)
    fingerprinter = Fingerprinter.load(default_key_path()) if options.fingerprints else None
    snapshot = collect(
        inventory, environment=environment, allow=options.allow, prefixes=options.prefix, fingerprinter=fingerprinter
    )
    print(as_json(snapshot) if options.json else snapshot.to_text(), end="\n" if options.json else "")
    return 1 if environment.variables is None else 0


def run_diff(options: Namespace) -> int:
    """``diff``: exit 1 when the snapshots differ."""
    found = diff(read_snapshot(options.before), read_snapshot(options.after))
    if options.json:
        document = {"schema": "omni-envinventory/diff/1", "differences": [difference.to_json() for difference in found]}
        print(json.dumps(document, indent=2))
    else:
        print(diff_text(found), end="")
    return 1 if found else 0


def run_docs(options: Namespace) -> int:
    """``docs``: write the page, or hold it against the committed one."""
    inventory, folder = _load(options)
    given: str | None = options.output
    if given is None and inventory.project.reference is None:
        print(render(inventory, title=options.title), end="")
        return 0
    if given == "-":
        print(render(inventory, title=options.title), end="")
        return 0
    target = Path(given) if given is not None else folder / str(inventory.project.reference)
    if options.check:
        committed = target.read_text("utf-8") if target.is_file() else ""
        changed = differences(inventory, committed, title=options.title)
        if changed:
            print(changed, end="")
            print(f"{target} is outdated; write it with the docs command without --check", file=sys.stderr)
        return 1 if changed else 0
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(render(inventory, title=options.title), "utf-8")
    print(f"wrote {target}", file=sys.stderr)
    return 0
