"""The response ledger: each response is created once, done once, and carries output only in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from omni_duplex_bench.audio import Aligner, Interval
from omni_duplex_bench.errors import ProtocolError

Phase = Literal["active", "terminal"]


@dataclass(slots=True)
class ResponseRecord:
    """One response as the client saw it. Times are seconds on the clock that the core was fed with; None: not seen."""

    response_id: str
    created_at_s: float
    order: int
    item_id: str | None = None
    first_text_at_s: float | None = None
    first_audio_at_s: float | None = None
    last_audio_at_s: float | None = None
    done_at_s: float | None = None
    status: str | None = None
    cancel_requested: bool = False
    cancelled_early: bool = False
    sample_rate_hz: int | None = None
    audio_bytes: int = 0
    spoken: list[str] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    final_text: str | None = None
    stage0: dict[str, Any] | None = None
    heard: list[Interval] = field(default_factory=list)
    aligner: Aligner = field(default_factory=Aligner)

    @property
    def phase(self) -> Phase:
        """Whether the response may still produce output."""
        return "active" if self.status is None else "terminal"

    @property
    def text(self) -> str:
        """What was said, or written where nothing was said."""
        return "".join(self.spoken) or self.final_text or "".join(self.written)

    @property
    def audio_s(self) -> float:
        """Seconds of audio received."""
        return self.audio_bytes / 2 / self.sample_rate_hz if self.sample_rate_hz else 0.0


class Ledger:
    """All responses of a session in order of creation. Every broken rule is a :class:`ProtocolError` with the id."""

    def __init__(self) -> None:
        self._records: dict[str, ResponseRecord] = {}

    def __iter__(self) -> Iterator[ResponseRecord]:
        return iter(self._records.values())

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, response_id: object) -> bool:
        return response_id in self._records

    def __getitem__(self, response_id: str) -> ResponseRecord:
        return self._records[response_id]

    @property
    def active(self) -> tuple[ResponseRecord, ...]:
        """Responses that may still produce output."""
        return tuple(record for record in self if record.phase == "active")

    def create(self, response_id: str, at_s: float) -> ResponseRecord:
        """Enter a response.

        Raises:
            ProtocolError: If the id was created before.
        """
        if response_id in self._records:
            raise ProtocolError(f"response {response_id!r} was created twice", response_id=response_id)
        record = ResponseRecord(response_id, at_s, len(self._records))
        self._records[response_id] = record
        return record

    def producing(self, response_id: str, what: str) -> ResponseRecord:
        """The record that output of kind ``what`` belongs to.

        Raises:
            ProtocolError: If the response is unknown or already over.
        """
        record = self._records.get(response_id)
        if record is None:
            raise ProtocolError(f"{what} for the unknown response {response_id!r}", response_id=response_id)
        if record.phase == "terminal":
            raise ProtocolError(
                f"{what} for response {response_id!r} after it was {record.status}", response_id=response_id
            )
        return record

    def finish(
        self, response_id: str, status: str, at_s: float, *, early_cancel: bool = False
    ) -> ResponseRecord | None:
        """End a response; None when this is the done that follows an early ``response.cancelled`` (one terminal).

        Raises:
            ProtocolError: If the response is unknown or was done before.
        """
        record = self._records.get(response_id)
        if record is None:
            raise ProtocolError(f"done for the unknown response {response_id!r}", response_id=response_id)
        if record.phase == "terminal":
            if record.cancelled_early and not early_cancel:
                record.cancelled_early = False
                return None
            raise ProtocolError(f"response {response_id!r} was done twice", response_id=response_id)
        record.status, record.done_at_s, record.cancelled_early = status, at_s, early_cancel
        return record
