"""Single requests: text, transcripts, speech and media, each admitted, led through its stage and freed at its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, cast

import numpy as np

from omni_serve.contract import (
    INPUT_RATE_HZ,
    ChatPiece,
    ChatRequest,
    MediaRequest,
    MediaResult,
    Pcm,
    Transcript,
)
from omni_serve.engine.admission import Gate
from omni_serve.engine.config import EngineConfig
from omni_serve.engine.hub import Hub
from omni_serve.engine.jobs import Job
from omni_serve.engine.replies import mind_metrics
from omni_serve.errors import InvalidRequestError
from omni_serve.stages.messages import Answer, Clause, Made, Make, Sound, SoundDone, Text, TextDone, Transcribe, Words
from omni_serve.voice.clauses import ClauseSplitter

_LANGUAGES = (None, "en", "english")


class Requests:
    """The requests of one deployment.

    Args:
        hub: Where stages are reached.
        config: Limits.
        gates: Admission by kind of stage.
    """

    def __init__(self, hub: Hub, config: EngineConfig, gates: Mapping[str, Gate]) -> None:
        self._hub = hub
        self._config = config
        self._gates = gates

    def shut(self) -> None:
        """Admit nothing more."""
        for gate in self._gates.values():
            gate.closed = True

    async def idle(self) -> None:
        """Wait until no request is under way."""
        await asyncio.gather(*(gate.idle.wait() for gate in self._gates.values()))

    async def quiet(self, stages: Sequence[str]) -> None:
        """Wait until the requests under way on these stages have ended; their deadline bounds it."""
        kinds = {r.spec.kind for kind in self._gates for r in self._hub.all() if r.spec.name in stages}
        await asyncio.gather(*(self._gates[kind].idle.wait() for kind in kinds))

    async def chat(self, request: ChatRequest) -> AsyncIterator[ChatPiece]:
        """Continue a conversation in text."""
        self._hub.kinds("reply")
        with self._gates["reply"].enter():
            with Job(self._hub, self._config.deadline_s, self._hub.pick("reply")) as job:
                job.send(
                    Answer(
                        job.id,
                        [(m.role, m.content) for m in request.messages],
                        request.max_tokens,
                        request.temperature,
                        request.top_p,
                        request.seed,
                        list(request.stop),
                        "",
                        1.0,
                    )
                )
                while True:
                    match await job.next():
                        case Text(text=text):
                            yield ChatPiece(text)
                        case TextDone() as done:
                            job.finished()
                            finish: Literal["stop", "length"] = "length" if done.finish == "length" else "stop"
                            yield ChatPiece("", finish, done.tokens_in, done.tokens_out, mind_metrics(done))
                            return

    async def transcribe(self, pcm: Pcm, language: str | None) -> Transcript:
        """Write a recording down."""
        if language not in _LANGUAGES:
            raise InvalidRequestError(f"language is {language!r}; this model knows only 'en'", field="language")
        self._hub.kinds("listen")
        with self._gates["listen"].enter():
            with Job(self._hub, self._config.deadline_s, self._hub.pick("listen")) as job:
                job.send(Transcribe(job.id, pcm))
                words = await job.next()
                assert isinstance(words, Words)
                job.finished()
        segments = tuple((start, end, text) for start, end, text in words.segments)
        text = " ".join(text for _, _, text in segments)
        return Transcript(text, pcm.size / INPUT_RATE_HZ, "en", segments)

    async def synthesize(self, text: str, speed: float) -> AsyncIterator[Pcm]:
        """Speak a text, clause by clause."""
        splitter = ClauseSplitter()
        clauses = [*splitter.push(text), *splitter.finish()]
        if not clauses:
            raise InvalidRequestError("input has nothing to pronounce", field="input")
        self._hub.kinds("speak")
        with self._gates["speak"].enter():
            with Job(self._hub, self._config.deadline_s, self._hub.pick("speak")) as job:
                for number, clause in enumerate(clauses, 1):
                    job.send(Clause(job.id, clause, speed, last=number == len(clauses)))
                while True:
                    match await job.next():
                        case Sound(pcm=pcm):
                            yield np.asarray(pcm, np.int16)
                        case SoundDone():
                            job.finished()
                            return

    async def generate(self, request: MediaRequest) -> MediaResult:
        """Make images, sound or film."""
        self._hub.kinds("media")
        with self._gates["media"].enter():
            with Job(self._hub, self._config.deadline_s, self._hub.pick("media")) as job:
                job.send(
                    Make(
                        job.id,
                        request.prompt,
                        request.negative_prompt,
                        request.width,
                        request.height,
                        request.num_frames,
                        request.audio_length_s,
                        request.audio_start_s,
                        request.num_inference_steps,
                        request.guidance_scale,
                        request.seed,
                        request.count,
                    )
                )
                made = await job.next()
                assert isinstance(made, Made)
                job.finished()
        kind = cast(Literal["image", "audio", "video"], made.kind)
        return MediaResult(kind, np.asarray(made.data), made.rate, tuple(made.seeds))
