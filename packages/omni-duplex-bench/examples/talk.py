"""Talk to a realtime server: stream a WAV file at the pace of real time, print what comes, save the answer.

    python talk.py ws://127.0.0.1:8000/v1/realtime hello.wav answer.wav

Without arguments it talks to a scripted server of its own.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import numpy as np

from omni_duplex_bench import RealtimeClient
from omni_duplex_bench.events import TextDelta
from omni_duplex_bench.testing import Script, ScriptedServer, speechlike
from omni_duplex_bench.wavfile import read_wav, wav_bytes


async def talk(url: str, pcm16: bytes, rate_hz: int, answer: Path | None) -> None:
    """One turn: speak, listen, save."""
    async with RealtimeClient(url) as client:
        await client.configure(instructions="Answer in one sentence.")
        async for event in client.stream(pcm16, rate_hz=rate_hz):
            if isinstance(event, TextDelta):
                print(event.delta, end="", flush=True)
        print()
        segments = client.core.playback.segments
        if answer is not None and segments:
            samples = np.frombuffer(b"".join(bytes(s.audio) for s in segments), "<i2")
            answer.write_bytes(wav_bytes(samples.astype(np.int16), segments[0].sample_rate_hz))
            print(f"{len(samples) / segments[0].sample_rate_hz:.1f} s of speech in {answer}")


async def main() -> None:
    """With arguments talk to that server, else to a scripted one."""
    if len(sys.argv) > 2:
        recording = read_wav(sys.argv[2])
        answer = Path(sys.argv[3]) if len(sys.argv) > 3 else None
        await talk(sys.argv[1], recording.pcm.tobytes(), recording.rate_hz, answer)
        return
    async with ScriptedServer(Script(turns="server")) as server:
        await talk(server.url, speechlike(1.0, 16_000).tobytes(), 16_000, None)


if __name__ == "__main__":
    asyncio.run(main())
