"""How the command line reads sizes and prints tables, JSON and progress."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars
from rich.table import Table

from omni_hwr.config import Progress, ProgressCallback, ignore_progress
from omni_hwr.manifest import Manifest
from omni_hwr.store import Entry

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _UNITS[_letter + "IB"] = 1024**_power
    _UNITS[_letter + "B"] = 1000**_power
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_bytes(text: str) -> int:
    """``100GiB``, ``5 MB`` or plain bytes; usage error otherwise."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise click.UsageError(f"{text!r} is no size; write for example 100GiB, 500MB or 4096")
    return int(float(match[1]) * unit)


def parse_duration(text: str) -> float:
    """``7d``, ``12h``, ``30m``, ``90s`` in seconds; usage error otherwise."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd])\s*", text)
    if match is None:
        raise click.UsageError(f"{text!r} is no duration; write for example 7d, 12h, 30m or 90s")
    return float(match[1]) * _SECONDS[match[2]]


def format_bytes(nbytes: int) -> str:
    """A size for people: at most four digits and a binary unit."""
    size = float(nbytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def format_age(seconds: float) -> str:
    """How long ago, in the largest unit that gives at least one."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit} ago"
    return "just now"


def emit(value: object, as_json: bool, lines: Sequence[str]) -> None:
    """Print ``value`` as JSON, or ``lines``."""
    if as_json:
        click.echo(json.dumps(value, indent=2))
        return
    for line in lines:
        click.echo(line)


def entry_table(entry: Entry) -> dict[str, object]:
    """An entry as JSON."""
    return {
        "digest": entry.digest,
        "key": None if entry.key is None else entry.key.content,
        "nbytes": entry.nbytes,
        "created": datetime.fromtimestamp(entry.created_s, UTC).isoformat(),
        "used": datetime.fromtimestamp(entry.used_s, UTC).isoformat(),
        "pinned": entry.pinned,
    }


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=200)


def show_entries(entries: Sequence[Entry], as_json: bool, when_empty: str | None) -> None:
    """A listing."""
    if as_json:
        click.echo(json.dumps([entry_table(entry) for entry in entries], indent=2))
        return
    if not entries:
        if when_empty is not None:
            click.echo(when_empty)
        return
    table = Table(box=None, pad_edge=False)
    for title in ("digest", "model", "component", "representation", "layout"):
        table.add_column(title, overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("used", no_wrap=True)
    table.add_column("", no_wrap=True)
    for entry in entries:
        key = entry.key
        layout = "" if key is None else " ".join(f"{name}={value}" for name, value in key.layout.items())
        names = ("unreadable", "", "") if key is None else (key.model, key.component, key.representation)
        age = format_age(time.time() - entry.used_s)
        pinned = "pinned" if entry.pinned else ""
        table.add_row(entry.digest[:12], *names, layout, format_bytes(entry.nbytes), age, pinned)
    _console().print(table)
    total = sum(entry.nbytes for entry in entries)
    click.echo(f"{len(entries)} artifact{'s' if len(entries) != 1 else ''}, {format_bytes(total)}")


def show_manifest(digest: str, manifest: Manifest, with_tensors: bool, as_json: bool) -> None:
    """One artifact in full."""
    if as_json:
        click.echo(manifest.dump().decode("ascii").rstrip())
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("digest", digest)
    for name, value in manifest.key.content.items():
        if value not in ("", {}):
            table.add_row(name, value if isinstance(value, str) else json.dumps(value))
    created = datetime.fromtimestamp(manifest.created_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    table.add_row("created", created)
    table.add_row("content", manifest.content_digest)
    for item in manifest.files:
        table.add_row("file", f"{item.name}  {format_bytes(item.nbytes)}  {item.digest}")
    shared = len(manifest.views) - len(manifest.blobs)
    note = f", {shared} sharing memory with another" if shared > 0 else ""
    table.add_row("tensors", f"{len(manifest.views)}{note}")
    console = _console()
    console.print(table)
    if not with_tensors:
        return
    tensors = Table(box=None, pad_edge=False)
    for title in ("name", "kind", "dtype", "shape", "file", "offset", "stored as"):
        tensors.add_column(title, overflow="fold")
    for view in manifest.views:
        blob = manifest.blobs[view.blob]
        stored = "" if blob.name == view.name else blob.name
        shape = "×".join(map(str, view.shape)) or "scalar"
        offset = str(blob.offset + view.offset)
        tensors.add_row(view.name, view.kind, view.dtype, shape, str(blob.file + 1), offset, stored)
    console.print(tensors)


@contextmanager
def bar(as_json: bool) -> Iterator[ProgressCallback]:
    """A progress bar on stderr where that is a terminal; else a callback that does nothing."""
    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        yield ignore_progress
        return
    columns = (
        TextColumn("{task.description:<28.28}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task("", total=None)

        def update(report: Progress) -> None:
            text = f"{report.stage} {report.item}".strip()
            bars.update(task, description=text, completed=report.done_bytes, total=report.total_bytes or None)

        yield update
