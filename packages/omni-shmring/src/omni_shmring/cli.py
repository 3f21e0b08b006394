"""The command line: what stands in shared memory, and removing what dead processes left there."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click
from rich.console import Console
from rich.table import Table

from omni_shmring import __version__
from omni_shmring.config import TransportConfig
from omni_shmring.errors import ShmringError
from omni_shmring.survey import ScopeInfo, survey
from omni_shmring.survey import reap as reap_scopes

_root = click.option(
    "--root", default=TransportConfig().root, show_default=True, metavar="DIR", help="Directory that holds the scopes."
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="omni-shmring")
def commands() -> None:
    """Tensors and Python values between processes of one host, over shared memory.

    Look at the rings of your running engine, and clean up after processes that were killed.
    """


@commands.command("ls")
@_root
@click.option("--keys", default=3, show_default=True, metavar="N", help="How many unclaimed keys of each ring to name.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a scope, for programs.")
def list_rings(root: str, keys: int, as_json: bool) -> None:
    """List scopes, who has them open, and their rings: fill, age and unclaimed keys."""
    scopes = survey(root, keys)
    if as_json:
        for scope in scopes:
            click.echo(json.dumps(asdict(scope)))
        return
    console = Console()
    if not scopes:
        console.print(f"No scope of yours in {root}: no transport is open, and nothing was left behind.")
    for scope in scopes:
        _show(console, scope)


@commands.command("reap")
@_root
@click.option("--yes", is_flag=True, help="Remove it. Without this nothing is removed, only listed.")
def reap(root: str, yes: bool) -> None:
    """Remove what dead processes left in your scopes; by default only say what that would be.

    Nothing of a living process is ever removed. Transports do this themselves when they open and while they run; the
    command is for a host on which none does any more.
    """
    found = reap_scopes(root, really=yes)
    for path in found:
        click.echo(path)
    if not found:
        click.echo("Nothing to reap: all there is belongs to living processes.", err=True)
    elif yes:
        click.echo(f"Removed {len(found)}.", err=True)
    else:
        click.echo(f"Would remove {len(found)}. Add --yes to do it.", err=True)


def _show(console: Console, scope: ScopeInfo) -> None:
    console.print(f"[bold]{_safe(scope.scope)}[/]  {scope.path}  {_size(scope.nbytes)}")
    if scope.owners:
        table = Table("stage", "pid", "age", "state", box=None, pad_edge=False, padding=(0, 2, 0, 2))
        for owner in scope.owners:
            state = "open" if owner.alive else "[red]dead[/]"
            table.add_row(_safe(owner.stage), str(owner.pid), _age(owner.age_s), state)
        console.print(table)
    if scope.rings:
        table = Table("ring", "size", "pending", "bytes", "keys", box=None, pad_edge=False, padding=(0, 2, 0, 2))
        for ring in scope.rings:
            more = ring.pending - len(ring.keys)
            keys = ", ".join(_safe(key) for key in ring.keys) + (f", … {more} more" if more > 0 else "")
            size = _size(ring.ring_bytes) if ring.ring_bytes else "none"
            edge = f"{_safe(ring.owner.stage)} → {_safe(ring.dest)}"
            if ring.damage:
                table.add_row(edge, "", "", "", f"[red]{_safe(ring.damage)}[/]")
            else:
                table.add_row(edge, size, str(ring.pending), _size(ring.pending_bytes), keys)
        console.print(table)
    if scope.leftovers:
        console.print(f"  [yellow]{len(scope.leftovers)} files of dead processes; omni-shmring reap removes them[/]")


def _safe(text: str) -> str:
    """A name that somebody else chose, fit for a terminal: no control characters, no markup."""
    return "".join(c if c.isprintable() else "�" for c in text[:60]).replace("[", r"\[")


def _size(nbytes: int) -> str:
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def _age(seconds: float) -> str:
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def main() -> None:
    """Entry point: errors are one sentence on stderr."""
    try:
        commands(prog_name="omni-shmring")
    except ShmringError as error:
        click.echo(f"omni-shmring: {error}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
