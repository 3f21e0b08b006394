from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, sys
from omni_serve.voice.speak import PiperSpeaker
from omni_serve.voice.transcribe import WhisperTranscriber
PiperSpeaker(); WhisperTranscriber()
print(sorted(os.listdir(sys.argv[1])))
"""


def test_no_part_writes_a_session_file_or_wants_the_network(needs_voice: None, tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={"TMPDIR": str(tmp_path), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert (ran.stdout, ran.returncode) == ("[]\n", 0), ran.stderr
