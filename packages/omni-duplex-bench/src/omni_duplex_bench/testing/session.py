"""One scripted session: hears turns, answers them, can be interrupted, and speaks either set of event names."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from omni_duplex_bench.testing.script import Script, speechlike

Send = Callable[[dict[str, Any]], Awaitable[None]]

_NAMES = {
    "ga": ("response.output_audio", "response.output_audio_transcript", "conversation.item.added"),
    "beta": ("response.audio", "response.audio_transcript", "conversation.item.created"),
}


class ScriptedSession:
    """What the server knows of one client."""

    def __init__(self, script: Script, send: Send, session_id: str, resume_token: str) -> None:
        self._script, self._send, self._id, self._token = script, send, session_id, resume_token
        self._audio, self._transcript, self._item_added = _NAMES[script.dialect]
        self._responses = self._items = 0
        self._reply: asyncio.Task[None] | None = None
        self._reply_id: str | None = None
        self._cancelling = False
        self._deferred = 0
        self._pending_bytes = 0
        self._input_s = 0.0
        self._speaking = False
        self._silent_s = 0.0
        self._begun = False
        self._settings: dict[str, Any] = {}
        self._rate_hz = 24_000

    # --- session -----------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Announce the session."""
        self._begun = True
        await self._send({"type": "session.created", "session": self._session()})
        for event in self._script.extra_events:
            await self._send(dict(event))

    def _session(self) -> dict[str, Any]:
        vad = {"type": "server_vad", "silence_duration_ms": int(self._script.silence_s * 1000)}
        turns = vad if self._script.turns == "server" else None
        if self._script.dialect == "ga":
            formats = {"type": "audio/pcm", "rate": 24_000}
            session: dict[str, Any] = {
                "type": "realtime",
                "id": self._id,
                "model": "scripted",
                "output_modalities": ["audio"],
                "audio": {"input": {"format": formats, "turn_detection": turns}, "output": {"format": formats}},
            }
        else:
            session = {
                "id": self._id,
                "model": "scripted",
                "modalities": ["text", "audio"],
                "input_audio_format": "pcm16",
                "output_audio_format": "pcm16",
                "turn_detection": turns,
            }
        if self._script.extended:
            session["resume_token"] = self._token
            session["capabilities"] = {
                "chunk_period_ms": self._script.chunk_period_ms,
                "playback_ack": True,
                "video_frames": True,
            }
        return session

    async def expire(self) -> None:
        """End the session because its time is over."""
        await self._send({"type": "session.expired", "reason": "session limit"})

    async def close(self) -> None:
        """Stop a running reply."""
        if self._reply is not None:
            self._reply.cancel()
            await asyncio.gather(self._reply, return_exceptions=True)

    async def refuse(self, event_id: str | None, code: str, message: str) -> None:
        """Send an error that answers ``event_id``."""
        error = {"type": "invalid_request_error", "code": code, "message": message, "event_id": event_id}
        await self._send({"type": "error", "error": error})

    # --- what the client says ----------------------------------------------------------------------------------

    async def handle(self, event: Any) -> bool:
        """Take one client event; False ends the connection."""
        if not isinstance(event, dict) or not isinstance(event.get("type"), str):
            await self.refuse(None, "invalid_event", "an event is an object with a type")
            return True
        event_id = event.get("event_id")
        match event["type"]:
            case "session.update":
                await self._update(event)
            case "input_audio_buffer.append":
                await self._append(event)
            case "input_audio_buffer.commit":
                if not self._pending_bytes:
                    await self.refuse(event_id, "input_audio_buffer_commit_empty", "there is nothing to commit")
                else:
                    await self._commit()
            case "input_audio_buffer.clear":
                self._pending_bytes = 0
                await self._send({"type": "input_audio_buffer.cleared"})
            case "response.create":
                if self._reply_id is not None:
                    code = "conversation_already_has_active_response"
                    await self.refuse(event_id, code, f"response {self._reply_id} is active")
                else:
                    self._start_reply()
            case "response.cancel":
                if self._reply_id is None:
                    await self.refuse(event_id, "response_cancel_not_active", "no response is active")
                else:
                    await self._cancel()
            case "output_audio_buffer.clear":
                await self._send({"type": "output_audio_buffer.cleared", "response_id": self._reply_id})
            case "conversation.item.truncate":
                done = {"item_id": event.get("item_id"), "audio_end_ms": event.get("audio_end_ms"), "content_index": 0}
                await self._send({"type": "conversation.item.truncated", **done})
            case "session.close":
                await self._send({"type": "session.closed", "reason": "client request"})
                return False
            case "playback.ack" | "session.heartbeat" | "conversation.item.create":
                pass
            case other:
                await self.refuse(event_id, "unknown_event", f"unknown event {other!r}")
        return True

    async def _update(self, event: dict[str, Any]) -> None:
        settings = event.get("session")
        self._settings |= settings if isinstance(settings, dict) else {}
        declared = self._settings.get("audio", {}).get("input", {}).get("format", {}).get("rate")
        self._rate_hz = declared if isinstance(declared, int) else self._rate_hz
        if not self._begun:
            await self.begin()
        await self._send({"type": "session.updated", "session": self._session()})

    async def _append(self, event: dict[str, Any]) -> None:
        try:
            audio = base64.b64decode(event.get("audio", ""), validate=True)
        except (binascii.Error, TypeError, ValueError):
            await self.refuse(event.get("event_id"), "invalid_audio", "audio is not base64")
            return
        rate = event.get("sample_rate_hz") or self._rate_hz
        self._pending_bytes += len(audio)
        self._input_s += len(audio) / 2 / rate
        if self._script.turns == "server" and audio:
            await self._detect(audio, rate)

    async def _detect(self, audio: bytes, rate_hz: int) -> None:
        size = max(1, rate_hz // 50)
        samples = np.frombuffer(audio[: len(audio) // 2 * 2], "<i2").astype(np.float32)
        start_s = self._input_s - len(samples) / rate_hz
        for index in range(0, len(samples), size):
            frame = samples[index : index + size]
            loud = bool(len(frame)) and float(np.sqrt(np.mean(frame**2))) > 300.0
            now_s = start_s + (index + len(frame)) / rate_hz
            if loud:
                self._silent_s = 0.0
                if not self._speaking:
                    self._speaking = True
                    at_ms = int(1000 * (now_s - len(frame) / rate_hz))
                    await self._send(self._speech("started", audio_start_ms=at_ms))
                    if self._reply_id is not None and self._script.interrupt:
                        await self._cancel()
            elif self._speaking:
                self._silent_s += len(frame) / rate_hz
                if self._silent_s >= self._script.silence_s:
                    self._speaking = False
                    at_ms = int(1000 * (now_s - self._silent_s))
                    await self._send(self._speech("stopped", audio_end_ms=at_ms))
                    await self._commit()

    def _speech(self, what: str, **fields: int) -> dict[str, Any]:
        return {"type": f"input_audio_buffer.speech_{what}", "item_id": f"item_u{self._items + 1}", **fields}

    async def _commit(self) -> None:
        self._items += 1
        self._pending_bytes = 0
        deferred = self._reply_id is not None and self._script.overlap
        event: dict[str, Any] = {"type": "input_audio_buffer.committed", "item_id": f"item_u{self._items}"}
        event["previous_item_id"] = None
        if deferred:
            event["event"] = {"overlap_deferred": True}
            self._deferred += 1
        await self._send(event)
        if not deferred:
            await self._decide()

    async def _decide(self) -> None:
        match self._script.decide:
            case "respond":
                if self._reply_id is not None:
                    await self._cancel()
                self._start_reply()
            case "listen":
                await self._send({"type": "response.listen", "metadata": {"model_listen": True}, "buffering": False})
            case "buffer":
                self._reply = self._reply or asyncio.create_task(self._buffer())
            case "nothing":
                pass

    async def _buffer(self) -> None:
        while True:
            await self._send({"type": "response.listen", "metadata": {"model_listen": True}, "buffering": True})
            await asyncio.sleep(0.05)

    # --- what the server says ----------------------------------------------------------------------------------

    def _start_reply(self) -> None:
        self._responses += 1
        self._reply_id = f"resp_{self._id}_{self._responses}"
        self._reply = asyncio.create_task(self._speak(self._reply_id))

    async def _cancel(self) -> None:
        reply, reply_id = self._reply, self._reply_id
        if reply is None or reply_id is None:
            return
        reply.cancel()
        await asyncio.gather(reply, return_exceptions=True)
        self._reply = self._reply_id = None
        if reply_id in self._announced:
            if self._script.cancel_style == "cancelled+done":
                await self._send({"type": "response.cancelled", "response_id": reply_id})
            await self._send(self._response("response.done", reply_id, "cancelled"))

    _announced: frozenset[str] = frozenset()

    def _response(self, kind: str, reply_id: str, status: str) -> dict[str, Any]:
        response: dict[str, Any] = {"object": "realtime.response", "id": reply_id, "status": status, "output": []}
        event: dict[str, Any] = {"type": kind, "response": response}
        if kind == "response.done" and self._script.stage_metrics is not None:
            event["metadata"] = {"vllm_omni": {"stage_metrics": self._script.stage_metrics}}
        return event

    async def _speak(self, reply_id: str) -> None:
        script = self._script
        place = {"response_id": reply_id, "item_id": f"item_{reply_id}", "output_index": 0, "content_index": 0}
        await asyncio.sleep(script.think_s)
        self._announced |= {reply_id}
        await self._send(self._response("response.created", reply_id, "in_progress"))
        await asyncio.sleep(script.first_audio_s)
        words = script.text.split(" ") if script.with_text else []
        pcm = speechlike(script.reply_s, script.output_rate_hz).tobytes()
        size = script.output_rate_hz * 2 * script.delta_ms // 1000 + (1 if script.odd_bytes else 0)
        pieces = [pcm[i : i + size] for i in range(0, len(pcm), size)]
        spoken = 0
        for index, piece in enumerate(pieces):
            upto = (index + 1) * len(words) // len(pieces)
            if upto > spoken:
                text = (" " if spoken else "") + " ".join(words[spoken:upto])
                await self._send({"type": f"{self._transcript}.delta", **place, "delta": text})
                spoken = upto
            event = {"type": f"{self._audio}.delta", **place, "delta": base64.b64encode(piece).decode()}
            if script.extended:
                event |= {"format": "pcm16", "sample_rate_hz": script.output_rate_hz}
            await self._send(event)
            if script.speed > 0:
                await asyncio.sleep(script.delta_ms / 1000 / script.speed)
        if words:
            await self._send({"type": f"{self._transcript}.done", **place, "transcript": script.text})
        await self._send({"type": f"{self._audio}.done", **place})
        self._reply = self._reply_id = None
        await self._send(self._response("response.done", reply_id, "completed"))
        if self._deferred:
            self._deferred -= 1
            await self._decide()
