"""results.csv: one row a response, and one for a session without any, so that a spreadsheet shows everything."""

from __future__ import annotations

import csv
import io

from omni_duplex_bench.metrics import UNITS, ResponseMetrics
from omni_duplex_bench.results import RunResult

_SESSION = ("case_id", "subset", "status", "error", "decision", "duration_s", "streamed_s", "overlap_s", "talk_ratio")
_RESPONSE = ("response_id", "status", "created_s", "first_audio_s", "done_s", "audio_s", *UNITS, "text")
COLUMNS = (*_SESSION, "lag_mean_ms", "lag_max_ms", *(f"response_{n}" if n == "status" else n for n in _RESPONSE))


def results_csv(run: RunResult) -> bytes:
    """UTF-8 with a byte-order mark (spreadsheets need it to see UTF-8); an empty cell was not measured."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for case in run.cases:
        head = [*(getattr(case, name) for name in _SESSION), case.pacing.lag_mean_ms, case.pacing.lag_max_ms]
        rows: list[ResponseMetrics | None] = [*case.responses] or [None]
        for response in rows:
            tail = [getattr(response, name) if response is not None else None for name in _RESPONSE]
            writer.writerow([_cell(value) for value in (*head, *tail)])
    return b"\xef\xbb\xbf" + out.getvalue().encode()


def _cell(value: object) -> str:
    """Text that a spreadsheet does not take for a formula (OWASP: CSV injection); numbers stay numbers."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
