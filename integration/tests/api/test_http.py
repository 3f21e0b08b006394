"""The HTTP endpoints through the official client where it has a call, and every error with its status and field."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from typing import Any

import av
import httpx
import numpy as np
import pytest

from omni_serve.api.settings import ApiSettings
from omni_serve.errors import DeadlineError, OverloadedError, StageUnavailableError, UnsupportedError

openai = pytest.importorskip("openai", reason="needs the openai client")


def official(server: Any) -> Any:
    return openai.AsyncOpenAI(api_key="none", base_url=f"{server.http}/v1", max_retries=0)


async def test_chat_whole_and_streamed(serving: Any) -> None:
    async with serving() as server, official(server) as client:
        messages = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
        whole = await client.chat.completions.create(model="echo-text", messages=messages, seed=-(2**63), stop="x")
        assert whole.choices[0].message.content == "Hello there."
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (3, 2)
        asked = server.engine.chats[0]
        assert (asked.messages[0].role, asked.seed, asked.stop) == ("system", -(2**63), ("x",))
        stream = await client.chat.completions.create(
            model="echo-text", messages=messages, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == "Hello there."
        assert chunks[-1].usage.total_tokens == 5
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"


async def test_closing_a_stream_cancels_its_request(serving: Any) -> None:
    async with serving() as server, httpx.AsyncClient(base_url=server.http) as client:
        server.engine.release.clear()
        body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
        async with client.stream("POST", "/v1/chat/completions", json=body) as answer:
            async for _ in answer.aiter_lines():
                break
        await asyncio.wait_for(server.engine.chat_closed.wait(), 30)


async def test_leaving_a_whole_answer_cancels_its_request(serving: Any) -> None:
    async with serving() as server, httpx.AsyncClient(base_url=server.http) as client:
        server.engine.release.clear()
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/chat/completions", json=body, timeout=httpx.Timeout(10, read=0.5))
        await asyncio.wait_for(server.engine.chat_closed.wait(), 30)


@pytest.mark.parametrize("form", ["wav", "pcm", "flac", "mp3", "opus"])
async def test_speech_in_every_format_holds_the_audio(serving: Any, form: str) -> None:
    async with serving() as server, official(server) as client:
        answer = await client.audio.speech.create(model="echo-speech", voice="joe", input="Hi", response_format=form)
        data = answer.read()
    if form == "pcm":
        assert len(data) == 5 * 4800 * 2
        return
    with av.open(io.BytesIO(data)) as container:
        frames = list(container.decode(audio=0))
    seconds = sum(frame.samples / frame.sample_rate for frame in frames)
    assert seconds == pytest.approx(1.0, abs=0.11)
    loudest = max(float(np.abs(frame.to_ndarray()).max()) for frame in frames)
    assert loudest > (1000 if frames[0].format.name.startswith("s16") else 0.03)


async def test_an_unknown_format_lists_the_known_ones(serving: Any) -> None:
    async with serving() as server, official(server) as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await client.audio.speech.create(model="echo-speech", voice="joe", input="Hi", response_format="aac")
        assert refused.value.param == "response_format"
        assert "wav, flac, mp3, opus, pcm" in str(refused.value)


async def test_transcriptions_in_every_shape(serving: Any) -> None:
    async with serving() as server, official(server) as client:
        speech = await client.audio.speech.create(model="echo-speech", voice="joe", input="Hi", response_format="flac")
        data = ("a.flac", speech.read())
        found = await client.audio.transcriptions.create(model="echo-transcription", file=data)
        assert abs(int(found.text.split()[0]) - 16_000) < 32
        shapes = {}
        for shape in ("text", "verbose_json", "srt", "vtt"):
            shapes[shape] = await client.audio.transcriptions.create(
                model="echo-transcription", file=data, response_format=shape
            )
        assert "00:00:01,250 --> 00:00:02,500" in shapes["srt"]
        assert shapes["vtt"].startswith("WEBVTT\n\n00:00:00.000 --> ")
        assert shapes["verbose_json"].segments[1].text == "two"
        for name, bad in (("junk", b"this is no audio"), ("empty", b"")):
            with pytest.raises(openai.BadRequestError) as refused:
                await client.audio.transcriptions.create(model="echo-transcription", file=(name, bad))
            assert refused.value.param == "file"


async def test_pictures_sound_and_film(serving: Any) -> None:
    async with serving() as server, official(server) as client, httpx.AsyncClient(base_url=server.http) as plain:
        made = await client.images.generate(model="echo-image", prompt="a cat", size="64x32", n=2)
        with av.open(io.BytesIO(base64.b64decode(made.data[0].b64_json))) as container:
            picture = next(container.decode(video=0)).to_ndarray(format="rgb24")
        assert picture.shape == (8, 12, 3)
        assert int(picture[0, 0, 0]) == 200
        assert (server.engine.media[0].width, server.engine.media[0].height, len(made.data)) == (64, 32, 2)
        body = {"input": "rain", "audio_length": 2.5, "audio_start": 1, "num_inference_steps": 4, "seed": 2**63 - 1}
        sound = await plain.post("/v1/audio/generate", json=body)
        with av.open(io.BytesIO(sound.content)) as container:
            assert container.streams.audio[0].rate == 44_100
        assert server.engine.media[1].audio_length_s == 2.5
        film = (await plain.post("/v1/videos", json={"prompt": "a river", "num_frames": 4})).json()
        with av.open(io.BytesIO(base64.b64decode(film["b64_json"]))) as container:
            assert len(list(container.decode(video=0))) == 4


BAD = [
    ("/v1/chat/completions", {"messages": []}, "messages"),
    ("/v1/chat/completions", {"messages": [{"role": "x", "content": ""}]}, "messages[0].role"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        "messages[0].content[0]",
    ),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "seed": 2**63}, "seed"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "seed": 10**400}, "seed"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}, "max_tokens"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": True}, "max_tokens"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "temperature": -1}, "temperature"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "n": 2}, "n"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "model": "gpt"}, "model"),
    ("/v1/audio/speech", {"input": " "}, "input"),
    ("/v1/audio/speech", {"input": "x" * 4097}, "input"),
    ("/v1/audio/speech", {"input": "a", "speed": 9}, "speed"),
    ("/v1/images/generations", {"prompt": "a", "size": "0x8"}, "size"),
    ("/v1/images/generations", {"prompt": "a", "size": "99999x99999"}, "size"),
    ("/v1/images/generations", {"prompt": "a", "num_inference_steps": 0}, "num_inference_steps"),
    ("/v1/images/generations", {"prompt": "a", "response_format": "url"}, "response_format"),
    ("/v1/audio/generate", {"input": "a", "audio_length": 0}, "audio_length"),
    ("/v1/audio/generate", {"input": "a", "seed": -(2**63) - 1}, "seed"),
    ("/v1/videos", {"prompt": "a", "num_frames": 0}, "num_frames"),
    ("/v1/omni/sleep", {"stages": ["nobody"]}, "stages"),
    ("/v1/omni/sleep", {"stages": [None]}, "stages"),
]


@pytest.mark.parametrize(("path", "body", "field"), BAD)
async def test_bad_values_name_their_field(serving: Any, path: str, body: dict[str, Any], field: str) -> None:
    async with serving() as server, httpx.AsyncClient(base_url=server.http) as client:
        answer = await client.post(path, json=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"]) == (400, field), error
        assert not server.engine.asleep
        assert (await client.get("/health")).status_code == 200


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b'{"seed": NaN}', b"\xff\xfe", b"[" * 200_000])
async def test_bodies_that_are_no_json_object(serving: Any, raw: bytes) -> None:
    async with serving() as server, httpx.AsyncClient(base_url=server.http) as client:
        answer = await client.post("/v1/chat/completions", content=raw)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")


async def test_bodies_past_the_limit_are_refused_however_they_come(serving: Any) -> None:
    async def pieces() -> Any:
        for _ in range(64):
            yield b"x" * 1024

    settings = ApiSettings(max_body_bytes=4096)
    async with serving(settings) as server, httpx.AsyncClient(base_url=server.http) as client:
        declared = await client.post("/v1/audio/speech", content=b"x" * 5000)
        streamed = await client.post("/v1/audio/speech", content=pieces())
        for answer in (declared, streamed):
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "body_too_large")


FAULTS = [
    (OverloadedError("full", retry_after_s=3), 429),
    (StageUnavailableError("dead", stage="reply"), 503),
    (UnsupportedError("no such thing"), 501),
    (DeadlineError("too slow"), 504),
    (RuntimeError("a secret inside"), 500),
]


@pytest.mark.parametrize(("fault", "status"), FAULTS)
async def test_faults_of_the_engine_have_their_status(serving: Any, fault: Exception, status: int) -> None:
    async with serving() as server, httpx.AsyncClient(base_url=server.http) as client:
        server.engine.fault = fault
        for body in (
            {"messages": [{"role": "user", "content": "a"}]},
            {"messages": [{"role": "user", "content": "a"}], "stream": True},
        ):
            answer = await client.post("/v1/chat/completions", json=body)
            assert answer.status_code == status
            assert "secret" not in answer.text
            assert answer.headers.get("retry-after") == ("3" if status == 429 else None)
        server.engine.fault = None
        assert (await client.post("/v1/chat/completions", json=body)).status_code == 200


async def test_a_request_past_its_time_is_504_and_cancelled(serving: Any) -> None:
    async with serving(ApiSettings(request_limit_s=0.2)) as server, httpx.AsyncClient(base_url=server.http) as client:
        server.engine.release.clear()
        answer = await client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "a"}]})
        assert answer.status_code == 504
        await asyncio.wait_for(server.engine.chat_closed.wait(), 30)


async def test_health_models_metrics_sleep_and_the_page(serving: Any) -> None:
    async with serving() as server, httpx.AsyncClient(base_url=server.http) as client:
        assert (await client.get("/health")).json()["status"] == "ok"
        server.engine.ready = False
        assert (await client.get("/health")).status_code == 503
        server.engine.ready = True
        assert len((await client.get("/v1/models")).json()["data"]) == 7
        assert (await client.get("/metrics")).text == "omni_up 1\n"
        assert (await client.post("/v1/omni/sleep")).status_code == 200
        assert server.engine.asleep == {"only"}
        assert (await client.post("/v1/omni/wakeup", json={})).status_code == 200
        assert not server.engine.asleep
        page = await client.get("/")
        assert "http://" not in page.text.replace("http://localhost", "")
        assert "https://" not in page.text


async def test_the_key_guards_all_but_health_and_the_page(serving: Any) -> None:
    async with serving(ApiSettings(api_key="k-1")) as server, httpx.AsyncClient(base_url=server.http) as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/")).status_code == 200
        for path in ("/v1/models", "/metrics"):
            assert (await client.get(path)).status_code == 401
            assert (await client.get(path, headers={"Authorization": "Bearer k-1"})).status_code == 200


async def test_a_foreign_pages_post_is_refused(serving: Any) -> None:
    async with serving() as server, httpx.AsyncClient(base_url=server.http) as client:
        body = json.dumps({"input": "Hi"})
        answer = await client.post("/v1/audio/speech", content=body, headers={"Origin": "https://evil.example"})
        assert answer.status_code == 403
        rebound = {"Origin": "http://evil.example", "Host": "evil.example"}
        assert (await client.post("/v1/audio/speech", content=body, headers=rebound)).status_code == 403
