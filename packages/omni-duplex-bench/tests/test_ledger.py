"""Created once, done once, output only in between."""

from __future__ import annotations

import pytest

from omni_duplex_bench.errors import ProtocolError
from omni_duplex_bench.ledger import Ledger


def test_a_response_lives_once() -> None:
    ledger = Ledger()
    record = ledger.create("r", 1.0)
    assert ledger.producing("r", "audio") is record
    assert ledger.active == (record,)
    ledger.finish("r", "completed", 2.0)
    assert not ledger.active
    assert record.phase == "terminal"
    assert list(ledger) == [record]
    assert "r" in ledger
    assert ledger["r"] is record


@pytest.mark.parametrize("step", ["create", "audio", "done"])
def test_every_broken_rule_is_an_error_with_the_id(step: str) -> None:
    ledger = Ledger()
    ledger.create("r", 0.0)
    ledger.finish("r", "completed", 1.0)
    steps = {
        "create": lambda: ledger.create("r", 2.0),
        "audio": lambda: ledger.producing("r", "audio"),
        "done": lambda: ledger.finish("r", "completed", 2.0),
    }
    with pytest.raises(ProtocolError) as caught:
        steps[step]()
    assert caught.value.response_id == "r"
    assert len(ledger) == 1


def test_output_and_done_of_an_unknown_response_are_refused() -> None:
    for call in (lambda: Ledger().producing("x", "text"), lambda: Ledger().finish("x", "completed", 0.0)):
        with pytest.raises(ProtocolError, match="unknown response 'x'"):
            call()


def test_an_early_cancel_and_its_done_are_one_terminal() -> None:
    ledger = Ledger()
    ledger.create("r", 0.0)
    assert ledger.finish("r", "cancelled", 1.0, early_cancel=True) is not None
    assert ledger.finish("r", "cancelled", 1.1) is None
    with pytest.raises(ProtocolError, match="done twice"):
        ledger.finish("r", "cancelled", 1.2)
    assert ledger["r"].done_at_s == 1.0


def test_text_is_what_was_said_else_what_was_written() -> None:
    record = Ledger().create("r", 0.0)
    assert record.text == ""
    assert record.audio_s == 0.0
    record.written.append("written")
    assert record.text == "written"
    record.final_text = "whole"
    assert record.text == "whole"
    record.spoken.append("said")
    assert record.text == "said"
