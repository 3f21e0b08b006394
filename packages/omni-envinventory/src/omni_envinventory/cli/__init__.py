"""The command line: ``omni-envinventory scan | check | collect | diff | docs``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from omni_envinventory.errors import EnvInventoryError

from . import commands


def _version() -> str:
    try:
        return version("omni-envinventory")
    except PackageNotFoundError:
        return "not installed"


def _inventory_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-i",
        "--inventory",
        metavar="FILE",
        default=None,
        help="a TOML file, or a built-in name such as vllm-omni (default: envinventory.toml here or above)",
    )


def _cache_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cache", metavar="FILE", help="keep what was learnt of each file here, by digest, for the next run"
    )


def build_parser(prog: str = "omni-envinventory") -> argparse.ArgumentParser:
    """The whole command line as an argparse parser."""
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Which environment variables does this code read or write, are they known and documented, "
        "and what of them may go into a bug report? Reads source; never imports or runs it.",
        epilog="Exit status: 0 all is well, 1 something was found, 2 the command could not do its work.",
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    sub = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    scan = sub.add_parser(
        "scan", help="list every access to the environment", description="List every access to the environment."
    )
    scan.add_argument(
        "paths", nargs="*", metavar="PATH", help="files and folders (default: the inventory's sources, else here)"
    )
    _inventory_option(scan)
    scan.add_argument(
        "--exclude", action="append", default=[], metavar="PATTERN", help="leave out files whose path matches"
    )
    scan.add_argument("--json", action="store_true", help="the documented JSON form")
    scan.add_argument("--names", action="store_true", help="names and patterns only, one a line")
    scan.add_argument("--dynamic", action="store_true", help="only accesses whose name could not be resolved")
    _cache_option(scan)
    scan.set_defaults(run=commands.run_scan)

    check = sub.add_parser(
        "check",
        help="hold the code, the inventory, the reference page and deployment files against each other",
        description="Hold the code, the inventory, the reference page and deployment files against each other.",
    )
    _inventory_option(check)
    check.add_argument(
        "files", nargs="*", metavar="FILE", help="ignored: pre-commit passes what changed; the whole is checked"
    )
    check.add_argument(
        "--root", metavar="FOLDER", help="where the inventory's paths start (default: the inventory's folder)"
    )
    shape = check.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="the documented JSON form")
    shape.add_argument("--plain", action="store_true", help="one path:line: rule: message a line")
    shape.add_argument("--github", action="store_true", help="annotations for GitHub Actions, after the plain lines")
    check.add_argument(
        "--against", metavar="FILE", help="an older inventory: its list of grandfathered names must not have grown"
    )
    _cache_option(check)
    check.set_defaults(run=commands.run_check)

    collect = sub.add_parser(
        "collect",
        help="the environment section of a bug report, masked",
        description="The environment section of a bug report. Values only of public names, an allowlist and declared "
        "prefixes; whatever looks like a secret is masked.",
    )
    _inventory_option(collect)
    collect.add_argument("--pid", type=int, metavar="PID", help="another process, as it was started (from /proc)")
    collect.add_argument("--allow", action="append", default=[], metavar="NAME", help="show this value too")
    collect.add_argument(
        "--prefix", action="append", default=[], metavar="PREFIX", help="show values of names that start so too"
    )
    collect.add_argument("--json", action="store_true", help="the documented JSON form: a snapshot for diff")
    collect.add_argument(
        "--fingerprints",
        action="store_true",
        help="add keyed fingerprints, so that diff can compare masked values (the key stays on this machine)",
    )
    collect.set_defaults(run=commands.run_collect)

    diff = sub.add_parser(
        "diff", help="compare two snapshots", description="Compare two snapshots; exit 1 if they differ."
    )
    diff.add_argument("before", metavar="BEFORE", help="a snapshot written by collect --json or by a worker")
    diff.add_argument("after", metavar="AFTER", help="another one")
    diff.add_argument("--json", action="store_true", help="the documented JSON form")
    diff.set_defaults(run=commands.run_diff)

    docs = sub.add_parser(
        "docs", help="write or check the reference page", description="Write the reference page from the inventory."
    )
    _inventory_option(docs)
    docs.add_argument(
        "-o", "--output", metavar="FILE", help="the page (default: the inventory's reference; - for stdout)"
    )
    docs.add_argument("--title", default="Environment variables", help="the page's title")
    docs.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 and show the difference if the page is outdated"
    )
    docs.set_defaults(run=commands.run_docs)
    return parser


def main(argv: Sequence[str] | None = None, *, prog: str = "omni-envinventory") -> int:
    """Run the command line.

    Args:
        argv: Arguments, those of the process by default.
        prog: How help and errors call the program; an application that forwards a subcommand passes its own.

    Returns:
        0 all is well, 1 something was found, 2 the command could not do its work.

    Raises:
        SystemExit: From argparse, for ``--help``, ``--version`` (0) and wrong usage (2).
    """
    options = build_parser(prog).parse_args(argv)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
        return status
    except EnvInventoryError as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # Whoever read our output has enough of it; keep the interpreter from complaining about the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        print(f"{prog}: {error.strerror or type(error).__name__}:{where}", file=sys.stderr)
        return 2


def run() -> None:
    """``python -m omni_envinventory``."""
    sys.exit(main())
