"""What goes out: names, fields left out, and settings in both shapes."""

from __future__ import annotations

import msgspec

from omni_duplex_bench import commands as cmd


def wire(command: cmd.Command) -> dict[str, object]:
    decoded: dict[str, object] = msgspec.json.decode(msgspec.json.encode(command))
    return decoded


def test_fields_that_say_nothing_are_left_out() -> None:
    assert wire(cmd.Commit()) == {"type": "input_audio_buffer.commit"}
    assert wire(cmd.Append(audio="AA==")) == {"type": "input_audio_buffer.append", "audio": "AA=="}
    full = cmd.Append(audio="", sample_rate_hz=16_000, duration_ms=200, audio_end_ms=400, video_frames=["x"])
    assert set(wire(full)) == {"type", "audio", "sample_rate_hz", "duration_ms", "audio_end_ms", "video_frames"}


def test_zero_positions_are_sent() -> None:
    truncate = wire(cmd.Truncate(item_id="i", audio_end_ms=0, content_index=0))
    assert truncate["audio_end_ms"] == 0
    assert truncate["content_index"] == 0
    ack = wire(cmd.PlaybackAck(response_id="r", played_ms=0, committed_ms=0))
    assert ack == {"type": "playback.ack", "response_id": "r", "played_ms": 0, "committed_ms": 0}


def test_every_command_has_its_wire_name() -> None:
    names: list[tuple[cmd.Command, str]] = [
        (cmd.SessionUpdate(session={}), "session.update"),
        (cmd.Clear(), "input_audio_buffer.clear"),
        (cmd.CreateResponse(), "response.create"),
        (cmd.CancelResponse(), "response.cancel"),
        (cmd.ClearOutput(), "output_audio_buffer.clear"),
        (cmd.Heartbeat(), "session.heartbeat"),
        (cmd.CloseSession(), "session.close"),
        (cmd.CreateItem(item={}), "conversation.item.create"),
    ]
    for command, name in names:
        assert command.type == wire(command)["type"] == name


def test_settings_state_the_input_format_in_either_shape() -> None:
    ga = cmd.session_settings("ga", input_rate_hz=16_000, instructions="i", voice="v", turn_detection=None)
    assert ga["audio"]["input"] == {"format": {"type": "audio/pcm", "rate": 16_000}, "turn_detection": None}
    assert ga["audio"]["output"]["voice"] == "v"
    assert ga["type"] == "realtime"
    beta = cmd.session_settings("beta", input_rate_hz=24_000, turn_detection={"type": "server_vad"}, extra={"x": 1})
    assert beta["input_audio_format"] == "pcm16"
    assert beta["turn_detection"] == {"type": "server_vad"}
    assert beta["x"] == 1
    assert "instructions" not in beta
    assert "turn_detection" not in cmd.session_settings("beta", input_rate_hz=24_000)
