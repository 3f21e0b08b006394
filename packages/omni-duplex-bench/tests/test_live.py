"""What a view says of sessions."""

from __future__ import annotations

import io
import re

from rich.console import Console

from omni_duplex_bench.bench import RunState
from omni_duplex_bench.live import LiveView, finish_line, session_row
from omni_duplex_bench.metrics import ResponseMetrics
from omni_duplex_bench.replay import LiveSession
from omni_duplex_bench.results import CaseResult


def console(width: int = 80, *, terminal: bool) -> Console:
    return Console(file=io.StringIO(), width=width, height=24, force_terminal=terminal, highlight=False)


def test_many_sessions_with_long_names_fit_80_columns() -> None:
    state = RunState(
        total=50, sessions=[LiveSession(f"subset/{'very-long-name-' * 5}{n}", "configuring") for n in range(20)]
    )
    target = console(terminal=True)
    view = LiveView(target, state, title="ws://" + "x" * 200)
    with target.capture() as shown:
        target.print(view._render())
    plain = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", shown.get()).splitlines() if line.strip()]
    assert any("more" in line for line in plain)
    assert max(map(len, plain)) <= 80
    assert len(plain) <= 14


def test_without_a_terminal_there_are_lines_and_no_control_codes() -> None:
    target = console(terminal=False)
    with LiveView(target, RunState(total=1), title="t") as view:
        view._next_line_s = 0.0
        view.tick()
        view.tick()
        view.finished(CaseResult(case_id="a", source="a.wav", status="failed", error="it [broke]"))
    assert isinstance(target.file, io.StringIO)
    text = target.file.getvalue()
    assert text.splitlines() == ["0/1 done, 0 running", "✗ a: failed: it [broke]"]


def test_a_finished_session_in_a_line() -> None:
    response = ResponseMetrics(response_id="r", status="completed", text="x" * 80, ttfp_speech_end_ms=512.3)
    done = CaseResult(case_id="a", source="a.wav", status="ok", responses=[response])
    assert finish_line(done).plain.startswith("✓ a: 1 response, first audio 512 ms after speech “xxx")
    assert "…”" in finish_line(done).plain
    assert "(listened only)" in finish_line(CaseResult(case_id="a", source="", status="listen_only")).plain
    assert session_row(LiveSession("a"))[:2] == ("a", "waiting")
