"""What is happening while a run goes: a table on a terminal, lines elsewhere."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from omni_duplex_bench.bench import RunState
from omni_duplex_bench.replay import LiveSession
from omni_duplex_bench.results import CaseResult
from omni_duplex_bench.tables import figure, plural

_ROWS = 8
_LINE_EVERY_S = 5.0


class LiveView:
    """Shows a :class:`RunState`. A context manager; ``tick()`` is called a few times a second by the run's loop."""

    def __init__(self, console: Console, state: RunState, *, title: str) -> None:
        self._console, self._state, self._title = console, state, title
        self._live = (
            Live(get_renderable=self._render, console=console, refresh_per_second=8, auto_refresh=False, transient=True)
            if console.is_terminal
            else None
        )
        self._next_line_s = time.monotonic() + _LINE_EVERY_S

    def __enter__(self) -> LiveView:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def tick(self) -> None:
        """Bring the view up to date."""
        if self._live is not None:
            self._live.refresh()
        elif time.monotonic() >= self._next_line_s:
            self._next_line_s = time.monotonic() + _LINE_EVERY_S
            self._console.print(self._summary(), soft_wrap=True)

    def finished(self, result: CaseResult) -> None:
        """Say that a session is over: one line, on terminals above the table."""
        target = self._live.console if self._live is not None else self._console
        target.print(finish_line(result), soft_wrap=True)

    def _running(self) -> list[LiveSession]:
        return [session for session in self._state.sessions if session.result is None]

    def _summary(self) -> Text:
        state = self._state
        done = len(state.results)
        failed = sum(r.status not in ("ok", "listen_only") for r in state.results)
        lags = [
            session.pacer.trace.lags_s[-1]
            for session in self._running()
            if session.pacer and session.pacer.trace.lags_s
        ]
        text = f"{done}/{state.total} done, {len(self._running())} running"
        text += f", {failed} failed" if failed else ""
        text += f", lag {max(lags) * 1000:.1f} ms" if lags else ""
        return Text(text)

    def _render(self) -> RenderableType:
        table = Table(box=None, pad_edge=False, header_style="bold", width=min(self._console.width, 100))
        table.add_column("session", overflow="ellipsis", no_wrap=True, ratio=1, min_width=10)
        for name in ("phase", "time", "lag ms", "turns", "1st audio"):
            table.add_column(name, justify="left" if name == "phase" else "right", no_wrap=True)
        running = self._running()
        for session in running[:_ROWS]:
            table.add_row(*session_row(session))
        more = [Text(f"… and {len(running) - _ROWS} more", style="dim")] if len(running) > _ROWS else []
        return Group(Text(self._title, style="bold", overflow="ellipsis", no_wrap=True), self._summary(), table, *more)


def session_row(session: LiveSession) -> tuple[str, str, str, str, str, str]:
    """A running session in six short columns."""
    pacer, client = session.pacer, session.client
    if pacer is None or client is None:
        return session.case_id, session.phase, "", "", "", ""
    trace, core = pacer.trace, client.core
    phase = session.phase
    if phase == "talking":
        speaking = core.playback.end_s > time.monotonic()
        heard = trace.streamed_s < trace.input_s
        phase = (
            "both speak" if speaking and heard else "server speaks" if speaking else "you speak" if heard else "waiting"
        )
    lag = f"{trace.lags_s[-1] * 1000:.1f}" if trace.lags_s else ""
    first = ""
    ends = [trace.start_at_s + i.end_s for i in trace.speech]
    for record in core.ledger:
        before = [end for end in ends if end <= record.created_at_s]
        if record.first_audio_at_s is not None and before:
            first = f"{(record.first_audio_at_s - before[-1]) * 1000:.0f} ms"
    elapsed = f"{trace.streamed_s:.1f}/{trace.input_s:.1f} s"
    return session.case_id, phase, elapsed, lag, str(len(core.ledger)), first


def finish_line(result: CaseResult) -> Text:
    """One finished session in a line."""
    if result.status not in ("ok", "listen_only"):
        return Text(f"✗ {result.case_id}: {result.status}: {result.error or 'interrupted'}", style="red")
    firsts = [r.ttfp_speech_end_ms for r in result.responses if r.ttfp_speech_end_ms is not None]
    text = f"✓ {result.case_id}: {plural(len(result.responses), 'response')}"
    text += f", first audio {figure(firsts[0], 'ms')} ms after speech" if firsts else ""
    text += " (listened only)" if result.status == "listen_only" or not result.responses else ""
    said = next((r.text for r in result.responses if r.text), "")
    return Text(text + (f" “{said[:60]}{'…' if len(said) > 60 else ''}”" if said else ""))
