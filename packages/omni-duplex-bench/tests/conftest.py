"""Media, datasets and runs that several test files need."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import av
import numpy as np
import pytest

from omni_duplex_bench.bench import LoadConfig
from omni_duplex_bench.cases import Case, Prepared
from omni_duplex_bench.pacing import PacingConfig
from omni_duplex_bench.replay import ReplayConfig
from omni_duplex_bench.results import RunResult
from omni_duplex_bench.runner import RunConfig, run
from omni_duplex_bench.testing import Script, ScriptedServer, speechlike


def write_video(
    path: Path,
    *,
    seconds: float = 3.0,
    audio_s: float | None = None,
    audio_at_s: float = 0.0,
    size: tuple[int, int] = (160, 96),
    codec: str = "mpeg4",
    fps: int = 10,
) -> Path:
    """A real video: second k is grey level 20 + 8 k with a white top left corner; its speech is a gliding tone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    audio_s = seconds if audio_s is None else audio_s
    with av.open(str(path), "w") as out:
        video = out.add_stream(codec, rate=fps)
        video.width, video.height, video.pix_fmt = size[0], size[1], "yuv420p"
        audio = out.add_stream("aac", rate=16_000, layout="mono") if audio_s else None
        for index in range(round(seconds * fps)):
            image = np.full((size[1], size[0], 3), 20 + 8 * (index // fps), np.uint8)
            image[: size[1] // 4, : size[0] // 4] = 255
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = index, Fraction(1, fps)
            out.mux(video.encode(frame))
        out.mux(video.encode(None))
        if audio is not None:
            pcm = speechlike(audio_s, 16_000)
            for at in range(0, len(pcm), 1024):
                piece = av.AudioFrame.from_ndarray(pcm[None, at : at + 1024], format="s16", layout="mono")
                piece.sample_rate, piece.pts = 16_000, at + round(audio_at_s * 16_000)
                piece.time_base = Fraction(1, 16_000)
                out.mux(audio.encode(piece))
            out.mux(audio.encode(None))
    return path


@pytest.fixture(scope="session")
def make_video() -> Callable[..., Path]:
    """Writes real videos; see :func:`write_video`."""
    return write_video


@pytest.fixture(scope="session")
def omniinteract(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """An OmniInteract-shaped dataset with all three subsets: its folder and the same as ``data.tar.gz``."""
    base = tmp_path_factory.mktemp("omniinteract")
    root = base / "data"
    notes = [{"question_time": "00:01", "question_text": "What?", "answer_time": "00:02", "answer_text": "A cup."}]
    for subset, codec in (("1q1a", "libx264"), ("1q1a_math", "mpeg4")):
        entries = []
        for number in (1, 2):
            name = f"{number:04d}"
            write_video(root / subset / "videos" / f"{name}.mp4", seconds=2.0, audio_s=0.6, codec=codec)
            (root / subset / "annotations").mkdir(exist_ok=True)
            (root / subset / "annotations" / f"{name}.json").write_text(json.dumps(notes))
            entry = {"video": f"videos/{name}.mp4", "annotation": f"annotations/{name}.json", "scene_type": "nested"}
            entries.append(entry)
        (root / subset / "video_json_map.json").write_text(json.dumps({"total": 2, "entries": entries}))
    write_video(root / "1qna" / "videos_bench" / "egoper" / "tea.mp4", seconds=2.0, audio_s=0.6)
    (root / "1qna" / "annotations" / "egoper").mkdir(parents=True)
    (root / "1qna" / "annotations" / "egoper" / "tea.json").write_text(json.dumps(notes))
    archive = base / "data.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(root, "data")
    return SimpleNamespace(folder=base, root=root, archive=archive)


@pytest.fixture
def tar_of(tmp_path: Path) -> Callable[[list[tarfile.TarInfo]], Path]:
    """Builds an archive of given members, each regular one holding ``hello``."""

    def build(members: list[tarfile.TarInfo]) -> Path:
        path = tmp_path / "made.tar"
        with tarfile.open(path, "w") as tar:
            for member in members:
                body = b"hello" if member.isreg() else b""
                member.size = len(body)
                tar.addfile(member, io.BytesIO(body))
        return path

    return build


def prepared(name: str = "a", seconds: float = 0.4) -> Prepared:
    """A decoded input of somebody speaking."""
    pcm = speechlike(seconds, 16_000)
    return Prepared(Case(name, Path(f"{name}.wav")), pcm, 16_000, seconds)


@pytest.fixture
def inputs() -> Callable[..., list[Prepared]]:
    """Decoded inputs of given names."""
    return lambda *names, seconds=0.4: [prepared(name, seconds) for name in names]


@pytest.fixture
def bench() -> Callable[..., RunResult]:
    """Runs inputs against a scripted server to the end and returns the results."""

    def go(
        script: Script,
        entries: list[Prepared],
        *,
        output: Path | None = None,
        load: LoadConfig | None = None,
        replay: dict[str, object] | None = None,
        pacing: dict[str, object] | None = None,
        **config: object,
    ) -> RunResult:
        async def work() -> RunResult:
            async with ScriptedServer(script) as server:
                pace = PacingConfig(chunk_ms=100, **{"decision_timeout_s": 10.0, **(pacing or {})})  # type: ignore[arg-type]
                how = ReplayConfig(server.url, pacing=pace, **(replay or {}))  # type: ignore[arg-type]
                settings = RunConfig(how, load or LoadConfig(), **config)  # type: ignore[arg-type]
                return await run(entries, settings, output=output)

        return asyncio.run(work())

    return go
