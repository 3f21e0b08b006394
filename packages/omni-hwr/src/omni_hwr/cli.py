"""``omni-hwr``: look at a store, check it, import into it, export from it, make room."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper
from pathlib import Path
from typing import Concatenate, ParamSpec

import click

from omni_hwr import __version__
from omni_hwr.cli_render import bar, emit, entry_table, parse_bytes, parse_duration, show_entries, show_manifest
from omni_hwr.config import StoreConfig
from omni_hwr.errors import KeyFormatError, MissingError, WeightStoreError
from omni_hwr.export import export
from omni_hwr.folders import import_folder
from omni_hwr.key import is_digest
from omni_hwr.space import PrunePolicy
from omni_hwr.store import WeightStore

P = ParamSpec("P")


@dataclass(frozen=True)
class Context:
    """The store that all commands work on, and how they print."""

    store: WeightStore
    as_json: bool

    def find(self, prefix: str) -> str:
        """The one digest that begins with ``prefix``."""
        if is_digest(prefix):
            return prefix
        found = [entry.digest for entry in self.store.entries() if entry.digest.startswith(prefix)]
        if not found:
            raise MissingError(prefix)
        if len(found) > 1:
            raise KeyFormatError(f"{prefix!r} begins {len(found)} digests; give more letters")
        return found[0]


def with_store(function: Callable[Concatenate[Context, P], None]) -> Callable[P, None]:
    """Give a command its context and turn the package's errors into one sentence on stderr and status 1."""

    @click.pass_obj
    def call(context: Context, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with context.store:
                function(context, *args, **kwargs)
        except WeightStoreError as fault:
            click.echo(f"omni-hwr: {fault}", err=True)
            sys.exit(1)

    return update_wrapper(call, function)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="omni-hwr")
@click.option(
    "--root",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="OMNI_HWR_ROOT",
    required=True,
    help="The store's directory (or set OMNI_HWR_ROOT).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON value instead of tables.")
@click.option("--max-bytes", help="Limit of the whole store for what this call publishes, for example 200GiB.")
@click.option("--allow-file-system", help="Accept this file system although it is not known to be local.")
@click.pass_context
def main(
    context: click.Context, root: Path, as_json: bool, max_bytes: str | None, allow_file_system: str | None
) -> None:
    """Weights of this node: published once, mapped by every worker.

    A DIGEST may be shortened to any beginning that only one artifact has.
    """
    limit = None if max_bytes is None else parse_bytes(max_bytes)
    config = StoreConfig(max_bytes=limit, allow_file_system=allow_file_system)
    context.obj = Context(WeightStore(root, config=config), as_json)


@main.command()
@with_store
def ls(context: Context) -> None:
    """List the artifacts, most recently used first."""
    show_entries(context.store.entries(), context.as_json, "no artifact is published yet")


@main.command()
@click.argument("digest")
@click.option("--tensors", is_flag=True, help="List every tensor.")
@with_store
def show(context: Context, digest: str, tensors: bool) -> None:
    """Show an artifact's key, files and tensors."""
    found = context.find(digest)
    manifest = context.store.manifest(found)
    show_manifest(found, manifest, tensors, context.as_json)


@main.command()
@click.argument("digests", nargs=-1, metavar="DIGEST...")
@click.option("--all", "every", is_flag=True, help="Verify all artifacts.")
@with_store
def verify(context: Context, digests: tuple[str, ...], every: bool) -> None:
    """Hash an artifact's bytes and check everything; what fails goes to quarantine and the status is 1."""
    if every == bool(digests):
        raise click.UsageError("name artifacts, or give --all")
    names = [entry.digest for entry in context.store.entries()] if every else [context.find(d) for d in digests]
    results: list[dict[str, object]] = []
    for name in names:
        started = time.monotonic()
        try:
            with bar(context.as_json) as progress:
                manifest = context.store.verify(name, progress)
            results.append({"digest": name, "ok": True, "nbytes": manifest.nbytes, "s": time.monotonic() - started})
        except WeightStoreError as fault:
            results.append({"digest": name, "ok": False, "code": fault.code, "message": str(fault)})
    emit(
        results,
        context.as_json,
        [f"{str(r['digest'])[:12]}  {'ok' if r['ok'] else 'DENIED: ' + str(r['message'])}" for r in results],
    )
    if not all(r["ok"] for r in results):
        sys.exit(1)


@main.command()
@click.option("--older-than", help="Remove what was not used for this long, for example 7d, 12h, 30m.")
@click.option("--max-bytes", help="Keep at most this much, for example 100GiB.")
@click.option("--max-count", type=click.IntRange(min=0), help="Keep at most this many artifacts.")
@click.option("--yes", is_flag=True, help="Remove; without it only what would be removed is shown.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed, which is the default.")
@with_store
def prune(
    context: Context, older_than: str | None, max_bytes: str | None, max_count: int | None, yes: bool, dry_run: bool
) -> None:
    """Remove what is least recently used, never what is leased or pinned."""
    if older_than is None and max_bytes is None and max_count is None:
        raise click.UsageError("say what to keep: --older-than, --max-bytes or --max-count")
    if yes and dry_run:
        raise click.UsageError("--yes and --dry-run contradict each other")
    policy = PrunePolicy(
        None if older_than is None else parse_duration(older_than),
        None if max_bytes is None else parse_bytes(max_bytes),
        max_count,
    )
    removed = context.store.prune(policy, dry_run=not yes)
    if not context.as_json:
        total = sum(entry.nbytes for entry in removed)
        verb = "removed" if yes else "would remove"
        click.echo(f"{verb} {len(removed)} artifacts, {total} bytes" + ("" if yes else "; add --yes to do it"))
    show_entries(removed, context.as_json, None)


@main.command()
@click.argument("digests", nargs=-1, required=True, metavar="DIGEST...")
@click.option("--yes", is_flag=True, help="Remove; without it only what would be removed is shown.")
@with_store
def rm(context: Context, digests: tuple[str, ...], yes: bool) -> None:
    """Remove artifacts, pinned or not, unless somebody leases them."""
    names = [context.find(digest) for digest in digests]
    results: list[dict[str, object]] = [
        {"digest": name, "removed": yes and context.store.remove(name), "dry_run": not yes} for name in names
    ]
    words = {(True, False): "removed", (False, False): "is leased or gone, not removed"}
    lines = [
        f"{str(r['digest'])[:12]}  {words.get((bool(r['removed']), bool(r['dry_run'])), 'would be removed; add --yes')}"
        for r in results
    ]
    emit(results, context.as_json, lines)
    if yes and not all(r["removed"] for r in results):
        sys.exit(1)


@main.command()
@click.argument("digest")
@click.option("--off", is_flag=True, help="Let it be pruned again.")
@with_store
def pin(context: Context, digest: str, off: bool) -> None:
    """Keep an artifact from being pruned."""
    found = context.find(digest)
    (context.store.unpin if off else context.store.pin)(found)
    emit({"digest": found, "pinned": not off}, context.as_json, [f"{found[:12]}  {'unpinned' if off else 'pinned'}"])


@main.command(name="import")
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--model", help="Name for the key; the folder's name by default.")
@click.option("--revision", default="", help="Revision for the key.")
@click.option("--component", "components", multiple=True, help="Only this component; may be repeated.")
@click.option("--variant", help="Weight variant, for example fp16.")
@with_store
def import_(
    context: Context,
    folder: Path,
    model: str | None,
    revision: str,
    components: tuple[str, ...],
    variant: str | None,
) -> None:
    """Publish the safetensors weights of a diffusers or transformers FOLDER, one artifact a component."""
    with bar(context.as_json) as progress:
        imported = import_folder(
            context.store, folder, model or folder.resolve().name, revision, components, variant, progress
        )
    results = [
        {"digest": item.digest, "component": item.component, "outcome": item.source, "nbytes": item.nbytes}
        for item in imported
    ]
    lines = [f"{i.digest[:12]}  {i.component:<20} {i.source:<6} {i.nbytes} bytes" for i in imported]
    emit(results, context.as_json, lines)


@main.command(name="export")
@click.argument("digest")
@click.argument("target", type=click.Path(path_type=Path, file_okay=False))
@with_store
def export_(context: Context, digest: str, target: Path) -> None:
    """Write an artifact to the new folder TARGET as safetensors files that any tool opens."""
    found = context.find(digest)
    with bar(context.as_json) as progress:
        written = export(context.store, found, target, progress)
    emit({"digest": found, "files": [str(p) for p in written]}, context.as_json, [f"wrote {path}" for path in written])


__all__ = ["entry_table", "main"]
