"""Reading request bodies: bounded, JSON only where JSON is meant, and cancelled when the client leaves."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request

from omni_serve.api.realtime.fields import Fields, WireError
from omni_serve.api.settings import ApiSettings
from omni_serve.errors import DeadlineError

T = TypeVar("T")

INT64_LOW, INT64_HIGH = -(2**63), 2**63 - 1


class ClientGoneError(Exception):
    """The client closed its connection; nobody reads an answer."""


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The whole body. Raises WireError past the limit, by the header or by what really comes."""
    declared = request.headers.get("content-length")
    if declared is not None and declared.isdigit() and int(declared) > limit_bytes:
        raise WireError(f"the body has {int(declared):,} bytes; the most is {limit_bytes:,}", code="body_too_large")
    parts: list[bytes] = []
    size = 0
    try:
        async for part in request.stream():
            size += len(part)
            if size > limit_bytes:
                raise WireError(f"the body passes {limit_bytes:,} bytes", code="body_too_large")
            parts.append(part)
    except ClientDisconnect:
        raise ClientGoneError from None
    return b"".join(parts)


async def read_json(request: Request, settings: ApiSettings) -> Fields:
    """The body as one JSON object."""
    raw = await read_body(request, settings.max_body_bytes)
    try:
        body = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise WireError(f"the body is not JSON: {error}", code="invalid_json") from None
    if not isinstance(body, dict):
        raise WireError("the body must be a JSON object", code="invalid_json")
    return Fields(body)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


async def while_connected(request: Request, work: Awaitable[T], limit_s: float) -> T:
    """The result of some work, given up when the client leaves or the time is over.

    Raises:
        ClientGoneError: The client closed its connection; the work was cancelled.
        DeadlineError: The work took longer than ``limit_s`` and was cancelled.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        done, _ = await asyncio.wait({task, gone}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        if task in done:
            return task.result()
        if gone in done:
            raise ClientGoneError
        raise DeadlineError(f"the request took longer than {limit_s:g} s")
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
