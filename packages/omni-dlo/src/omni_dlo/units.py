"""Sizes and rates as people write them: ``24GiB``, ``25GB/s``."""

from __future__ import annotations

import re

from omni_dlo.errors import PlanError

__all__ = ["format_bytes", "format_seconds", "parse_bytes", "parse_rate"]

_FACTORS = {
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str) -> int:
    """Bytes of ``text``: a number with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB (powers of 1024).

    Raises:
        PlanError: ``text`` is no such size.
    """
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _FACTORS:
        raise PlanError(f"{text!r} is not a size; write for example 24GiB or 800MB")
    return int(float(match[1]) * _FACTORS[match[2].lower()])


def parse_rate(text: str) -> float:
    """Bytes per second of ``text``, for example ``25GB/s``.

    Raises:
        PlanError: ``text`` is no positive rate.
    """
    head, slash, tail = text.strip().rpartition("/")
    if not slash or tail.strip().lower() != "s":
        raise PlanError(f"{text!r} is not a rate; write for example 25GB/s")
    rate = float(parse_bytes(head))
    if rate <= 0:
        raise PlanError(f"the rate {text!r} must be above zero")
    return rate


def format_bytes(count: int) -> str:
    """``count`` bytes with three significant figures in binary units."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.4g} {unit}"
        value /= 1024
    return f"{value:.4g} TiB"


def format_seconds(seconds: float) -> str:
    """``seconds`` in the unit that reads best."""
    if seconds >= 1:
        return f"{seconds:.3g} s"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds * 1e6:.3g} µs"
