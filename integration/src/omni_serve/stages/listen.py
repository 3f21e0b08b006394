"""The ear: voice activity and turns of every session, and the text of turns and recordings."""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from omni_serve.contract import INPUT_RATE_HZ, Pcm
from omni_serve.stages.links import API, Links
from omni_serve.stages.messages import (
    Audio,
    Cancel,
    Clear,
    Commit,
    Consumed,
    Failed,
    Leave,
    Listen,
    SpeechHeld,
    SpeechOn,
    Transcribe,
    TurnOver,
    Words,
)
from omni_serve.stages.transcribing import EARLY, RECORDING, TURN, Job, TranscribeThread
from omni_serve.voice.buffer import AudioBuffer
from omni_serve.voice.config import TurnConfig
from omni_serve.voice.parts import FRAME_SAMPLES, Detector, HeardSegment, Transcriber
from omni_serve.voice.turns import Onset, Pause, Sustained, TurnDetector, TurnEnd, TurnEvent

_KEEP_IDLE = 5 * INPUT_RATE_HZ
"""Audio kept between turns, for a commit by hand."""


class Ear:
    """One session's stream: frames through its detector, positions through its turns."""

    def __init__(self, session: str, detector: Detector, config: TurnConfig, detect: bool) -> None:
        self.session = session
        self.detector = detector
        self.config = config
        self.turns = TurnDetector(config)
        self.detect = detect
        self.audio = AudioBuffer()
        self.floor = 0
        self.early: tuple[int, int, Job] | None = None

    def configure(self, detect: bool, config: TurnConfig) -> None:
        """Take new settings from the next frame on."""
        self.config = config
        self.turns.configure(config)
        self.detect = detect

    def feed(self, pcm: Pcm) -> list[TurnEvent]:
        """Add audio and say what its whole frames decided. Without detection positions still advance."""
        self.audio.append(pcm)
        events: list[TurnEvent] = []
        while self.turns.position + FRAME_SAMPLES <= self.audio.end:
            start = self.turns.position
            frame = self.audio.cut(start, start + FRAME_SAMPLES)
            events += self.turns.frame(self.detector.probability(frame) if self.detect else 0.0)
            if self.detect:
                self.audio.forget(max(self.floor, min(self.turns.keep_from, self.turns.position - _KEEP_IDLE)))
        return events


class ListenStage:
    """See the module. ``detector`` makes a fresh detector for a session."""

    def __init__(self, links: Links, detector: Callable[[], Detector], transcriber: Transcriber, config: TurnConfig):
        self._links = links
        self._make_detector = detector
        self._transcriber = transcriber
        self._config = config
        self._thread = TranscribeThread(transcriber)
        self._ears: dict[str, Ear] = {}
        self._recordings: dict[str, Job] = {}

    def handle(self, peer: str, message: Any) -> None:
        """Take one message from the API."""
        match message:
            case Audio():
                self._audio(message)
            case Listen():
                self._listen(message)
            case Commit():
                self._commit(message)
            case Clear():
                self._clear(message.session)
            case Leave():
                ear = self._ears.pop(message.session, None)
                if ear is not None:
                    self._drop_early(ear)
            case Transcribe():
                self._transcribe(message)
            case Cancel():
                job = self._recordings.pop(message.job, None)
                if job is not None:
                    job.cancelled = True

    def close(self) -> None:
        """Stop the thread and let the weights go."""
        self._thread.close()
        self._transcriber.close()

    def _listen(self, message: Listen) -> None:
        config = replace(
            self._config,
            threshold=message.threshold,
            silence_ms=message.silence_ms,
            prefix_ms=message.prefix_ms,
            early_ms=min(self._config.early_ms, message.silence_ms),
        )
        ear = self._ears.get(message.session)
        if ear is None:
            self._ears[message.session] = Ear(message.session, self._make_detector(), config, message.detect)
        else:
            ear.configure(message.detect, config)

    def _audio(self, message: Audio) -> None:
        ear = self._ears.get(message.session)
        if ear is None:
            return
        pcm = np.asarray(message.pcm, np.int16)
        for event in ear.feed(pcm):
            self._say(ear, event)
        self._links.send(API, Consumed(ear.session, pcm.size))

    def _say(self, ear: Ear, event: TurnEvent) -> None:
        match event:
            case Onset(start=start):
                self._links.send(API, SpeechOn(ear.session, start))
            case Sustained(at=at):
                self._links.send(API, SpeechHeld(ear.session, at, time.monotonic()))
            case Pause(start=start, end=end):
                self._drop_early(ear)
                job = Job(ear.audio.cut(start, end), None)
                ear.early = (start, end, job)
                self._thread.submit(EARLY, job)
            case TurnEnd():
                self._over(ear, event, f"turn_{uuid.uuid4().hex[:20]}", by_hand=False)

    def _over(self, ear: Ear, ended: TurnEnd, turn: str, *, by_hand: bool) -> None:
        over = TurnOver(ear.session, turn, ended.start, ended.end, ended.speech_end, ended.speech_ms, by_hand)
        self._links.send(API, over)
        ear.floor = ended.end
        deliver = functools.partial(self._words, ear.session, turn)
        if ear.early is not None and ear.early[:2] == (ended.start, ended.end):
            ear.early[2].claim(deliver)
            ear.early = None
        else:
            self._drop_early(ear)
            self._thread.submit(TURN, Job(ear.audio.cut(ended.start, ended.end), deliver))
        ear.audio.forget(ended.end)

    def _commit(self, message: Commit) -> None:
        ear = self._ears.get(message.session)
        if ear is None:
            return
        start = ear.turns.finish()
        if start is not None:
            self._over(ear, replace(start, end=ear.audio.end), message.turn, by_hand=True)
        else:
            end = ear.audio.end
            whole = TurnEnd(max(ear.floor, ear.audio.base), end, end, 0, sustained=True)
            self._over(ear, whole, message.turn, by_hand=True)
        ear.turns.clear()

    def _clear(self, session: str) -> None:
        ear = self._ears.get(session)
        if ear is not None:
            self._drop_early(ear)
            ear.turns.clear()
            ear.detector.reset()
            ear.floor = ear.audio.end
            ear.audio.forget(ear.audio.end)

    def _drop_early(self, ear: Ear) -> None:
        if ear.early is not None:
            ear.early[2].cancelled = True
            ear.early = None

    def _transcribe(self, message: Transcribe) -> None:
        def deliver(result: tuple[HeardSegment, ...] | BaseException, busy_ms: float) -> None:
            self._recordings.pop(message.job, None)
            self._words("", message.job, result, busy_ms)

        job = Job(np.asarray(message.pcm, np.int16), deliver)
        self._recordings[message.job] = job
        self._thread.submit(RECORDING, job)

    def _words(self, session: str, job: str, result: tuple[HeardSegment, ...] | BaseException, busy_ms: float) -> None:
        if isinstance(result, BaseException):
            self._links.send(API, Failed(session or job, f"{type(result).__name__}: {result}"))
            return
        segments = [(s.start_s, s.end_s, s.text) for s in result]
        self._links.send(API, Words(session, job, segments, busy_ms))
