"""Rates and types that both sides of the seam share. Audio is mono signed 16-bit."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

INPUT_RATE_HZ = 16_000
OUTPUT_RATE_HZ = 24_000

Pcm = NDArray[np.int16]
"""Shape (samples,), mono."""

Role = Literal["system", "user", "assistant"]
Modality = Literal["text", "audio"]
ReplyStatus = Literal["completed", "cancelled", "failed", "incomplete"]
