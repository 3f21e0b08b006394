"""/v1/images/generations, /v1/audio/generate and /v1/videos: what a diffusion stage makes."""

from __future__ import annotations

import asyncio
import base64
import re
import secrets
import time
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from omni_serve.api.http.body import INT64_HIGH, INT64_LOW, read_json, while_connected
from omni_serve.api.http.encode import FORMATS, encoded, mp4, png
from omni_serve.api.http.models import chosen
from omni_serve.api.realtime.fields import Fields, WireError
from omni_serve.api.settings import ApiSettings
from omni_serve.contract import Engine, MediaRequest, MediaResult

MAX_SIDE = 8192
MAX_STEPS = 1000
_SIZE = re.compile(r"(\d{1,5})x(\d{1,5})")


async def images(request: Request, engine: Engine, settings: ApiSettings) -> Response:
    """Pictures for a prompt, as base64 PNG."""
    body = await read_json(request, settings)
    if (form := body.text("response_format")) not in (None, "b64_json"):
        raise WireError(f"response_format is {form!r}; this server gives b64_json", param="response_format")
    width, height = _size(body)
    count = body.integer("n", low=1, high=16) or 1
    asked = _request(body, "prompt", chosen(engine, body.text("model"), ("image",)), width, height, count=count)
    made = await while_connected(request, engine.generate(asked), settings.request_limit_s)
    _expect(made, "image")
    pictures = await asyncio.to_thread(lambda: [png(picture) for picture in made.data.astype(np.uint8)])
    data = [
        {"b64_json": base64.b64encode(picture).decode(), "seed": seed} for picture, seed in zip(pictures, made.seeds)
    ]
    return JSONResponse({"created": int(time.time()), "data": data})


async def audio(request: Request, engine: Engine, settings: ApiSettings) -> Response:
    """Sound for a prompt."""
    body = await read_json(request, settings)
    form = body.text("response_format") or "wav"
    if form not in (*FORMATS, "pcm"):
        raise WireError(
            f"response_format is {form[:40]!r}; it must be one of {', '.join((*FORMATS, 'pcm'))}",
            param="response_format",
        )
    asked = _request(body, "input", chosen(engine, body.text("model"), ("audio",)), None, None)
    made = await while_connected(request, engine.generate(asked), settings.request_limit_s)
    _expect(made, "audio")
    samples = (np.clip(made.data[0].astype(np.float32), -1.0, 1.0) * 32767).astype(np.int16)
    headers = {"X-Seed": str(made.seeds[0])}
    rate, channels = int(made.rate), samples.shape[1]
    if form == "pcm":
        return Response(samples.astype("<i2").tobytes(), media_type=f"audio/pcm;rate={rate}", headers=headers)
    data = await asyncio.to_thread(lambda: b"".join(encoded([samples], form, rate, channels)))
    return Response(data, media_type=FORMATS[form][2], headers=headers)


async def videos(request: Request, engine: Engine, settings: ApiSettings) -> Response:
    """A film for a prompt, as base64 MP4."""
    body = await read_json(request, settings)
    width, height = _size(body)
    asked = _request(body, "prompt", chosen(engine, body.text("model"), ("video",)), width, height)
    made = await while_connected(request, engine.generate(asked), settings.request_limit_s)
    _expect(made, "video")
    film = await asyncio.to_thread(mp4, made.data[0].astype(np.uint8), made.rate)
    found: dict[str, Any] = {
        "id": f"video_{secrets.token_hex(8)}",
        "object": "video",
        "status": "completed",
        "created_at": int(time.time()),
        "seed": made.seeds[0],
        "b64_json": base64.b64encode(film).decode(),
    }
    return JSONResponse(found)


def _expect(made: MediaResult, kind: str) -> None:
    if made.kind != kind:
        raise WireError(f"that model makes {made.kind}s; use its own endpoint", param="model")


def _size(body: Fields) -> tuple[int | None, int | None]:
    size = body.text("size")
    if size is None or size == "auto":
        width = body.integer("width", low=1, high=MAX_SIDE)
        return width, body.integer("height", low=1, high=MAX_SIDE)
    found = _SIZE.fullmatch(size)
    if found is None or not all(1 <= int(side) <= MAX_SIDE for side in found.groups()):
        raise WireError(f"size is {size[:40]!r}; it must be WIDTHxHEIGHT with sides of 1 to {MAX_SIDE}", param="size")
    return int(found[1]), int(found[2])


def _request(
    body: Fields, prompt: str, model: str, width: int | None, height: int | None, *, count: int = 1
) -> MediaRequest:
    text = body.text(prompt, required=True) or ""
    if not text.strip() or len(text) > 32_000:
        raise WireError(f"{prompt} must have 1 to 32000 characters, it has {len(text)}", param=prompt)
    return MediaRequest(
        prompt=text,
        model=model,
        negative_prompt=body.text("negative_prompt"),
        width=width,
        height=height,
        num_frames=body.integer("num_frames", low=1, high=4096),
        audio_length_s=body.number("audio_length", low=0.01, high=3600.0),
        audio_start_s=body.number("audio_start", low=0.0, high=3600.0),
        num_inference_steps=body.integer("num_inference_steps", low=1, high=MAX_STEPS),
        guidance_scale=body.number("guidance_scale", low=0.0, high=100.0),
        seed=body.integer("seed", low=INT64_LOW, high=INT64_HIGH),
        count=count,
    )
