"""The conversation as the wire shows it: items in order, and the objects that stand for them. Pure."""

from __future__ import annotations

import secrets
from typing import Any


def new_id(kind: str) -> str:
    """An id such as ``item_3f…``, unique without coordination."""
    return f"{kind}_{secrets.token_hex(10)}"


class Items:
    """Items by id, in the order of the conversation."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}

    @property
    def last_id(self) -> str | None:
        """The newest item's id."""
        return next(reversed(self._items), None)

    def add(self, item: dict[str, Any]) -> str | None:
        """Append an item; the id of the one before it."""
        before = self.last_id
        self._items[item["id"]] = item
        return before

    def get(self, item_id: str) -> dict[str, Any] | None:
        """An item, or None."""
        return self._items.get(item_id)

    def remove(self, item_id: str) -> bool:
        """Forget an item; whether it was there."""
        return self._items.pop(item_id, None) is not None


def user_audio(item_id: str, transcript: str | None = None) -> dict[str, Any]:
    """A spoken user message."""
    content = [{"type": "input_audio", "transcript": transcript}]
    return _message(item_id, "user", "completed", content)


def text_message(item_id: str, role: str, text: str) -> dict[str, Any]:
    """A written message of any role."""
    kind = "output_text" if role == "assistant" else "input_text"
    return _message(item_id, role, "completed", [{"type": kind, "text": text}])


def assistant(item_id: str, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    """An assistant message of a response."""
    return _message(item_id, "assistant", status, content)


def _message(item_id: str, role: str, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": item_id,
        "object": "realtime.item",
        "type": "message",
        "status": status,
        "role": role,
        "content": content,
    }
