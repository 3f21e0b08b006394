"""A session's history, kept to what was really said and heard. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from omni_serve.contract import Message, Role


@dataclass(slots=True)
class _Entry:
    role: Role
    text: str
    reply_id: str | None = None
    clauses: list[tuple[str, float]] = field(default_factory=list)


class Conversation:
    """Messages in order; a reply that was cut off keeps only the words that were heard.

    Args:
        most: Messages kept; the oldest go first.
    """

    def __init__(self, most: int = 64) -> None:
        self._entries: list[_Entry] = []
        self._most = most

    def add(self, role: Role, text: str) -> None:
        """Add a message that was written, or a turn that was heard."""
        self._push(_Entry(role, text))

    def begin_reply(self, reply_id: str) -> None:
        """Make room for a reply at the end; it counts once it has text."""
        self._push(_Entry("assistant", "", reply_id))

    def write(self, reply_id: str, delta: str) -> None:
        """Add text to a reply."""
        entry = self._reply(reply_id)
        if entry is not None:
            entry.text += delta

    def speak(self, reply_id: str, clause: str, duration_ms: float) -> None:
        """Add audio to a reply: the first piece of a clause brings its words, later pieces come with none."""
        entry = self._reply(reply_id)
        if entry is None:
            return
        if clause or not entry.clauses:
            entry.clauses.append((clause, duration_ms))
        else:
            words, so_far = entry.clauses[-1]
            entry.clauses[-1] = (words, so_far + duration_ms)

    def truncate(self, reply_id: str, heard_ms: float) -> str | None:
        """Keep of a spoken reply what was heard in ``heard_ms`` and return it; None for an unknown reply.

        Whole clauses count by their audio, the words of the one that was cut by its share.
        """
        entry = self._reply(reply_id)
        if entry is None:
            return None
        kept: list[str] = []
        left = heard_ms
        for clause, duration_ms in entry.clauses:
            if left >= duration_ms:
                kept.append(clause)
                left -= duration_ms
                continue
            words = clause.split()
            kept.append(" ".join(words[: int(len(words) * max(left, 0.0) / duration_ms)]))
            break
        entry.text = " ".join(piece for piece in kept if piece)
        return entry.text

    def messages(self, instructions: str) -> tuple[Message, ...]:
        """What the language model sees: the instructions, then everything with text."""
        system = (Message("system", instructions),) if instructions else ()
        return (*system, *(Message(e.role, e.text.strip()) for e in self._entries if e.text.strip()))

    def _push(self, entry: _Entry) -> None:
        self._entries.append(entry)
        del self._entries[: -self._most]

    def _reply(self, reply_id: str) -> _Entry | None:
        return next((e for e in reversed(self._entries) if e.reply_id == reply_id), None)
