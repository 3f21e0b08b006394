"""Speech to text with Whisper tiny.en, driven directly through CTranslate2.

faster-whisper gives the log-Mel front end (80 bands, 10 ms hop, as in openai/whisper). The decoding is one greedy pass
with no timestamps: ``<|startoftranscript|> <|notimestamps|>`` (50257, 50362 in the English-only vocabulary).
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from omni_serve.contract import INPUT_RATE_HZ, Pcm
from omni_serve.errors import StartupError
from omni_serve.voice.config import TranscribeConfig
from omni_serve.voice.parts import FRAME_SAMPLES, HeardSegment, Stop, Waveform
from omni_serve.voice.telemetry import forbid_telemetry
from omni_serve.voice.weights import INSTALL, WHISPER, verified

_PROMPT = [50257, 50362]
_LEAST_S = 0.1
_SEARCH_S = 4.0


class WhisperTranscriber:
    """tiny.en in int8: 75 MB of weights, about 0.1 s an utterance on one quiet core."""

    language = "en"

    def __init__(self, config: TranscribeConfig | None = None) -> None:
        forbid_telemetry()
        from ctranslate2.models import Whisper  # type: ignore[import-untyped]
        from tokenizers import Tokenizer

        self._config = config or TranscribeConfig()
        model, tokenizer, _ = (verified(file) for file in WHISPER)
        self._model = Whisper(
            str(model.parent),
            device="cpu",
            compute_type="int8",
            inter_threads=1,
            intra_threads=self._config.threads,
        )
        self._tokenizer = Tokenizer.from_file(str(tokenizer))
        self._features: Callable[..., Waveform] = _front_end()

    def transcribe(self, pcm: Pcm, stop: Stop) -> tuple[HeardSegment, ...]:
        """See :class:`~omni_serve.voice.parts.Transcriber`. Long audio is cut where it is quietest."""
        wave = pcm.astype(np.float32) / np.float32(32768.0)
        segments: list[HeardSegment] = []
        for start, end in windows(wave, int(self._config.window_s * INPUT_RATE_HZ)):
            if stop():
                break
            text = self._decode(wave[start:end])
            if text:
                segments.append(HeardSegment(start / INPUT_RATE_HZ, end / INPUT_RATE_HZ, text))
        return tuple(segments)

    def _decode(self, wave: Waveform) -> str:
        from ctranslate2 import StorageView  # type: ignore[import-untyped]

        config = self._config
        duration_s = wave.size / INPUT_RATE_HZ
        if duration_s < _LEAST_S:
            return ""
        padded = np.zeros(int(max(config.pad_s, duration_s + 0.5) * INPUT_RATE_HZ), np.float32)
        padded[: wave.size] = wave
        features = np.ascontiguousarray(self._features(padded, padding=0)[None], dtype=np.float32)
        (result,) = self._model.generate(
            StorageView.from_array(features),
            [_PROMPT],
            beam_size=1,
            no_repeat_ngram_size=config.no_repeat_ngram,
            max_length=len(_PROMPT) + 6 + math.ceil(duration_s * config.tokens_per_s),
            return_scores=True,
            return_no_speech_prob=True,
        )
        if result.no_speech_prob > config.no_speech and result.scores[0] < config.min_logprob:
            return ""
        return str(self._tokenizer.decode(result.sequences_ids[0])).strip()

    def close(self) -> None:
        """Let the weights go. Idempotent."""
        self._model.unload_model()


def _front_end() -> Callable[..., Waveform]:
    """faster-whisper's log-Mel front end, loaded from its file.

    It needs NumPy alone; the package around it also imports PyAV and the model hub's client, for files and downloads
    that do not happen here.
    """
    package = importlib.util.find_spec("faster_whisper")
    folders = package.submodule_search_locations if package is not None else None
    path = Path(next(iter(folders or ("",)))) / "feature_extractor.py"
    spec = importlib.util.spec_from_file_location("omni_serve_log_mel", path)
    if spec is None or spec.loader is None:
        raise StartupError(f"faster-whisper is not installed with its feature_extractor.py. {INSTALL}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    extractor: Callable[..., Waveform] = module.FeatureExtractor()
    return extractor


def windows(wave: Waveform, most: int) -> list[tuple[int, int]]:
    """Cut ``wave`` into pieces of at most ``most`` samples, cut at the quietest 32 ms near each end."""
    pieces: list[tuple[int, int]] = []
    start = 0
    while wave.size - start > most:
        search = min(int(_SEARCH_S * INPUT_RATE_HZ), most // 2)
        tail = wave[start + most - search : start + most]
        frames = tail[: tail.size // FRAME_SAMPLES * FRAME_SAMPLES].reshape(-1, FRAME_SAMPLES)
        quietest = int(np.argmin((frames.astype(np.float64) ** 2).sum(axis=1)))
        end = start + most - search + quietest * FRAME_SAMPLES + FRAME_SAMPLES // 2
        pieces.append((start, end))
        start = end
    if wave.size > start:
        pieces.append((start, wave.size))
    return pieces
