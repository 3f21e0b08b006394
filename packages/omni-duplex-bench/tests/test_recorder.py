"""What events.json keeps."""

from __future__ import annotations

import base64
import json

from omni_duplex_bench import commands as cmd
from omni_duplex_bench import events as ev
from omni_duplex_bench.recorder import Recorder


def test_audio_and_images_are_replaced_by_their_size() -> None:
    recorder = Recorder()
    audio = base64.b64encode(b"\1\2\3\4").decode()
    recorder.sent(cmd.Append(audio=audio, video_frames=["x", "y"], sample_rate_hz=16_000), 1.0)
    recorder.sent(cmd.SessionUpdate(session={"ref_audio": "d" * 5000, "voice": "v"}), 1.5)
    delta = {"type": "response.audio.delta", "response_id": "r", "delta": audio}
    recorder.received(ev.decode(json.dumps(delta), 2.0))
    sent, update, got = recorder.since(1.0)
    assert (sent.at_s, sent.direction, sent.event["audio_bytes"], sent.event["video_frames"]) == (0.0, "out", 4, 2)
    assert update.event["session"] == {"ref_audio": "<5000 characters>", "voice": "v"}
    assert got.event == {"type": "response.audio.delta", "response_id": "r", "audio_bytes": 4}


def test_violations_are_kept_with_their_words() -> None:
    recorder = Recorder()
    recorder.received(ev.Violation(type="violation", message="twice", raw={"type": "response.done"}, at_s=1.0))
    assert recorder.since(0.0)[0].event == {"type": "response.done", "violation": "twice"}
