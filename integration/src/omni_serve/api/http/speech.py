"""/v1/audio/speech (text to speech) and /v1/audio/transcriptions (speech to text)."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import Any

import av
import numpy as np
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from omni_serve.api.http.body import read_json, while_connected
from omni_serve.api.http.encode import FORMATS, AudioEncoder
from omni_serve.api.http.models import chosen
from omni_serve.api.realtime.fields import WireError
from omni_serve.api.settings import ApiSettings
from omni_serve.contract import INPUT_RATE_HZ, Engine, Pcm, Transcript

MAX_TEXT = 4096
MAX_RECORDING_S = 3600


async def speech(request: Request, engine: Engine, settings: ApiSettings) -> Response:
    """Speak a text; the body leaves as it is made."""
    body = await read_json(request, settings)
    chosen(engine, body.text("model"), ("speech", "voice"))
    text = body.text("input", required=True) or ""
    if not text.strip() or len(text) > MAX_TEXT:
        raise WireError(f"input has {len(text)} characters; it must have 1 to {MAX_TEXT}", param="input")
    form = body.text("response_format") or "mp3"
    if form not in (*FORMATS, "pcm"):
        known = ", ".join((*FORMATS, "pcm"))
        raise WireError(f"response_format is {form[:40]!r}; it must be one of {known}", param="response_format")
    speed = body.number("speed", low=0.25, high=4.0)
    pieces = engine.synthesize(text, speed=1.0 if speed is None else speed)
    first = await while_connected(request, anext(pieces), settings.request_limit_s)
    if form == "pcm":
        return StreamingResponse(_raw(first, pieces), media_type="audio/pcm;rate=24000")
    return StreamingResponse(_container(first, pieces, form), media_type=FORMATS[form][2])


async def _raw(first: Pcm, pieces: AsyncIterator[Pcm]) -> AsyncIterator[bytes]:
    try:
        yield first.astype("<i2").tobytes()
        async for piece in pieces:
            yield piece.astype("<i2").tobytes()
    finally:
        await _shut(pieces)


async def _container(first: Pcm, pieces: AsyncIterator[Pcm], form: str) -> AsyncIterator[bytes]:
    encoder = AudioEncoder(form)
    try:
        yield encoder.give(first)
        async for piece in pieces:
            yield encoder.give(piece)
        yield encoder.finish()
    finally:
        encoder.close()
        await _shut(pieces)


async def _shut(pieces: AsyncIterator[Pcm]) -> None:
    close = getattr(pieces, "aclose", None)
    if close is not None:
        await close()


async def transcriptions(request: Request, engine: Engine, settings: ApiSettings) -> Response:
    """Write a recording down."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > settings.max_body_bytes:
        raise WireError(f"the body has {declared} bytes; the most is {settings.max_body_bytes:,}", param="file")
    if "multipart/form-data" not in request.headers.get("content-type", ""):
        raise WireError("send the recording as multipart/form-data with a file field", param="file")
    async with request.form(max_files=1, max_fields=16, max_part_size=1 << 20) as form:
        upload = form.get("file")
        if not isinstance(upload, UploadFile):
            raise WireError("file is missing; send the recording in it", param="file")
        chosen(engine, _field(form, "model"), ("transcription", "voice"))
        shape = _field(form, "response_format") or "json"
        if shape not in _SHAPES:
            raise WireError(
                f"response_format is {shape[:40]!r}; it must be one of {', '.join(_SHAPES)}", param="response_format"
            )
        data = await upload.read()
        if len(data) > settings.max_body_bytes:
            raise WireError(f"file passes {settings.max_body_bytes:,} bytes", param="file")
        language = _field(form, "language")
    pcm = await asyncio.to_thread(decoded, data)
    found = await while_connected(request, engine.transcribe(pcm, language=language), settings.request_limit_s)
    return _SHAPES[shape](found)


def _field(form: FormData, name: str) -> str | None:
    value = form.get(name)
    return value if isinstance(value, str) and value else None


def decoded(data: bytes) -> Pcm:
    """Any audio file as 16 kHz mono. Raises WireError for what holds no audio."""
    try:
        with av.open(io.BytesIO(data), mode="r") as container:
            if not container.streams.audio:
                raise WireError("file has no audio track", param="file")
            resampler = av.AudioResampler(format="s16", layout="mono", rate=INPUT_RATE_HZ)
            parts: list[np.ndarray[Any, Any]] = []
            size = 0
            for frame in container.decode(audio=0):
                for piece in resampler.resample(frame):
                    parts.append(piece.to_ndarray().reshape(-1))
                    size += parts[-1].size
                if size > MAX_RECORDING_S * INPUT_RATE_HZ:
                    raise WireError(f"file is longer than {MAX_RECORDING_S} s", param="file")
            parts.extend(piece.to_ndarray().reshape(-1) for piece in resampler.resample(None))
    except av.FFmpegError as error:
        raise WireError(f"file is no audio that can be decoded: {error.strerror or error}", param="file") from None
    if not parts or not sum(part.size for part in parts):
        raise WireError("file holds no audio samples", param="file")
    return np.concatenate(parts).astype(np.int16)


def _stamp(seconds: float, mark: str) -> str:
    whole = round(seconds * 1000)
    return f"{whole // 3_600_000:02}:{whole // 60_000 % 60:02}:{whole // 1000 % 60:02}{mark}{whole % 1000:03}"


def _segments(found: Transcript) -> list[tuple[float, float, str]]:
    return list(found.segments) or [(0.0, found.duration_s, found.text)]


def _srt(found: Transcript) -> Response:
    cues = [
        f"{n}\n{_stamp(start, ',')} --> {_stamp(end, ',')}\n{text.strip()}\n"
        for n, (start, end, text) in enumerate(_segments(found), 1)
    ]
    return PlainTextResponse("\n".join(cues))


def _vtt(found: Transcript) -> Response:
    cues = [f"{_stamp(start, '.')} --> {_stamp(end, '.')}\n{text.strip()}\n" for start, end, text in _segments(found)]
    return PlainTextResponse("WEBVTT\n\n" + "\n".join(cues), media_type="text/vtt")


def _verbose(found: Transcript) -> Response:
    segments = [
        {"id": n, "start": start, "end": end, "text": text} for n, (start, end, text) in enumerate(_segments(found))
    ]
    body = {"task": "transcribe", "language": found.language, "duration": found.duration_s, "text": found.text}
    return JSONResponse(body | {"segments": segments})


_SHAPES = {
    "json": lambda found: JSONResponse({"text": found.text}),
    "text": lambda found: PlainTextResponse(found.text + "\n"),
    "verbose_json": _verbose,
    "srt": _srt,
    "vtt": _vtt,
}
