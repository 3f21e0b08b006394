"""One reply of a session in the making, and what it cost."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from omni_serve.contract import Modality, ReplyDone, ReplyStatus, StageMetrics
from omni_serve.engine.playback import PlaybackClock
from omni_serve.engine.replicas import Replica
from omni_serve.stages.messages import SoundDone, TextDone

MIND, MOUTH, EAR = "0", "1", "2"
"""The names of the stages in a reply's timing."""


@dataclass(slots=True)
class Reply:
    """A reply from its start to its end. It is whole when the text is and, where it is spoken, the speech is."""

    id: str
    turn_id: str | None
    modalities: tuple[Modality, ...]
    mind: Replica
    mouth: Replica | None
    started_s: float
    text: str = ""
    audio_ms: float = 0.0
    playback: PlaybackClock = field(default_factory=PlaybackClock)
    text_done: TextDone | None = None
    sound_done: SoundDone | None = None
    ear: StageMetrics | None = None

    @property
    def whole(self) -> bool:
        """Whether every stage has said all it has to say."""
        return self.text_done is not None and (self.mouth is None or self.sound_done is not None)

    @property
    def cut_short(self) -> bool:
        """Whether clauses were lost on their way to the mouth, as they are when the mind's process dies."""
        return (
            self.text_done is not None
            and self.sound_done is not None
            and self.sound_done.taken < self.text_done.clauses
        )

    def has_done(self, replica: str) -> bool:
        """Whether a replica has already said all it has to say about this reply."""
        if replica == self.mind.name:
            return self.text_done is not None
        return self.sound_done is not None

    def stages(self) -> dict[str, StageMetrics]:
        """Each stage's timing so far."""
        found: dict[str, StageMetrics] = {}
        if self.text_done is not None:
            found[MIND] = mind_metrics(self.text_done)
        if self.sound_done is not None:
            done = self.sound_done
            found[MOUTH] = StageMetrics(0, ttft_ms=done.ttft_ms, busy_ms=done.busy_ms)
        if self.ear is not None:
            found[EAR] = self.ear
        return found

    def done(self, status: ReplyStatus, reason: str | None = None) -> ReplyDone:
        """The event that ends it."""
        counts = self.text_done
        if status == "completed" and counts is not None and counts.finish == "length":
            status, reason = "incomplete", "max_output_tokens"
        return ReplyDone(
            self.id,
            status,
            self.text,
            round(self.audio_ms),
            reason,
            0 if counts is None else counts.tokens_in,
            self.stages(),
            0 if counts is None else counts.tokens_out,
        )


def mind_metrics(done: TextDone) -> StageMetrics:
    """The language model's timing in the names that benchmarks read.

    The count is of the tokens that were timed, those with text: n of them have n - 1 intervals between them, which is
    what a benchmark holds a server to. The end-of-turn token is in the usage, and has no time that anybody could see.
    """
    itls = tuple(done.itls_ms)
    return StageMetrics(
        0 if done.ttft_ms is None else len(itls) + 1,
        ttft_ms=done.ttft_ms,
        tpot_ms=statistics.fmean(itls) if itls else None,
        itls_ms=itls,
        busy_ms=done.busy_ms,
    )
