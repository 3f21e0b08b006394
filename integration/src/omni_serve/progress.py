"""What a person sees while stages start: a live line per stage on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

_MARKS = {"ready": ("✓", "green"), "failed": ("✗", "red")}


class StartProgress:
    """Use as a context manager around the engine's start, and give it :meth:`report`."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started_s = time.monotonic()
        self._states: dict[str, tuple[str, str, float]] = {}
        self._spinner = Spinner("dots")
        self._live = Live(self._table(), console=console, refresh_per_second=8) if console.is_terminal else None

    def report(self, replica: str, state: str, words: str) -> None:
        """Take a stage's news."""
        took_s = time.monotonic() - self._started_s
        self._states[replica] = (state, words, took_s)
        if self._live is not None:
            self._live.update(self._table())
        else:
            self._console.print(f"{took_s:6.1f} s  {replica:<12} {words or state}", highlight=False)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def _table(self) -> Table:
        table = Table.grid(padding=(0, 2))
        for replica, (state, words, took_s) in self._states.items():
            mark, colour = _MARKS.get(state, ("", ""))
            table.add_row(
                Text(mark, style=colour) if mark else self._spinner,
                replica,
                words or state,
                Text(f"{took_s:.1f} s", style="dim") if mark else "",
            )
        return table
