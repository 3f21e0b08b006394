"""Every default of the embedded voice, one frozen object per part."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """When a turn begins, is meant, and ends. All in milliseconds; a detector frame is 32 ms.

    Attributes:
        threshold: Probability from which a frame is speech.
        hysteresis: How far below the threshold a frame must fall to be silence again.
        onset_ms: Consecutive speech before a turn begins: a click is no turn.
        sustain_ms: Speech within a turn before it stops a reply: a short "mhm" does not.
        silence_ms: Silence that ends a turn.
        early_ms: Silence after which the words so far are transcribed ahead, in case the turn does end.
        prefix_ms: Audio kept before the first speech frame.
        suffix_ms: Audio kept after the last speech frame.
        max_turn_ms: A turn longer than this is closed, so that one speaker cannot hold a buffer without end.
    """

    threshold: float = 0.5
    hysteresis: float = 0.15
    onset_ms: int = 64
    sustain_ms: int = 512
    silence_ms: int = 500
    early_ms: int = 224
    prefix_ms: int = 200
    suffix_ms: int = 200
    max_turn_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class TranscribeConfig:
    """How Whisper is driven.

    Attributes:
        threads: Threads of the part; two parts with two threads each on two cores collapse.
        pad_s: Audio is padded to this length: shorter is faster, but Whisper then repeats itself.
        window_s: Longest piece given to the model at once (its own limit is 30 s).
        no_repeat_ngram: Length of token sequences that may not occur twice.
        tokens_per_s: Bound on the text's length by the audio's length. Fast English speech is about 5 tokens a second.
        no_speech: From this probability of silence, together with a mean log probability below ``min_logprob``,
            a piece has no words (the rule of the Whisper paper, arXiv:2212.04356, section 4.5).
        min_logprob: See ``no_speech``.
    """

    threads: int = 1
    pad_s: float = 8.0
    window_s: float = 28.0
    no_repeat_ngram: int = 4
    tokens_per_s: float = 8.0
    no_speech: float = 0.6
    min_logprob: float = -1.0


@dataclass(frozen=True, slots=True)
class ReplyConfig:
    """How the language model is driven.

    Attributes:
        width: Conversations answered side by side.
        threads: Threads of the part.
        context_tokens: Room of one conversation, prompt and answer.
        max_tokens: Longest answer where a request names none.
        temperature: Where a request names none. Low, because a small model drifts.
        repeat_penalty: Above 1 discourages repetition.
        instructions: The system message where a session gives none.
    """

    width: int = 4
    threads: int = 1
    context_tokens: int = 2048
    max_tokens: int = 64
    temperature: float = 0.2
    repeat_penalty: float = 1.05
    instructions: str = "You are a helpful AI assistant. Keep your answers short."


@dataclass(frozen=True, slots=True)
class SpeakConfig:
    """How the voice is driven; the noise scales come from the voice's own file.

    Attributes:
        threads: Threads of the part.
        max_chars: A clause longer than this is spoken in pieces, so that a stop is never far away.
    """

    threads: int = 1
    max_chars: int = 240
