"""/v1/models, and how a request's model name is held to it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from omni_serve.api.realtime.fields import WireError
from omni_serve.contract import Engine
from omni_serve.errors import UnsupportedError

_STARTED = int(time.time())


def listing(engine: Engine) -> dict[str, Any]:
    """Every model a client may name."""
    data = [
        {"id": model.id, "object": "model", "created": _STARTED, "owned_by": "omni-serve", "kind": model.kind}
        for model in engine.models()
    ]
    return {"object": "list", "data": data}


def chosen(engine: Engine, asked: str | None, kinds: Sequence[str]) -> str:
    """The model a request gets: the one it names, or the first of the first kind there is.

    Raises:
        UnsupportedError: The deployment has no model of that kind.
        WireError: It has, but none of that name.
    """
    fitting = [model.id for kind in kinds for model in engine.models() if model.kind == kind]
    if not fitting:
        raise UnsupportedError(f"this deployment has no {' or '.join(kinds)} model", field="model")
    if asked is None:
        return fitting[0]
    if asked not in fitting:
        raise WireError(
            f"no model {asked[:80]!r} for this endpoint; there is {', '.join(fitting)}",
            param="model",
            code="model_not_found",
        )
    return asked
