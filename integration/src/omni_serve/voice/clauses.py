"""Cutting a reply into clauses while it is still being written, so that speech begins at the first clause end."""

from __future__ import annotations

import re

_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|\n+")
_CLAUSE_END = re.compile(r"[,;:—–]+[\"'”’)\]]*(?=\s)")
_ABBREVIATION = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|St|vs|e\.g|i\.e|etc|[A-Z])|^\s*\d+)\.$")
_SPOKEN = re.compile(r"\w")
_CONNECTING = re.compile(
    r"\s(?=(?:and|or|but|that|which|who|because|so|if|when|while|where|to|of|in|on|at|for|with|by|from|as|into|about|is|are"
    r"|was|were|can|will)\s)",
    re.IGNORECASE,
)
"""The blank before a word that begins a phrase: a speaker may take a breath there."""


class ClauseSplitter:
    """Give it text as it comes; it gives back whole clauses, and what is left at the end.

    A sentence end always closes a clause. A comma or colon does once enough words stand before it: few for the
    first clause, which the listener is waiting for, more afterwards, because longer clauses sound better. A first
    clause that goes on for ``breath_words`` without either is cut before a connecting word: the silence before
    the first sound is what a listener notices most.
    """

    def __init__(
        self, *, first_words: int = 2, later_words: int = 5, breath_words: int = 6, most_chars: int = 240
    ) -> None:
        self._first_words = first_words
        self._later_words = later_words
        self._breath_words = breath_words
        self._most_chars = most_chars
        self._rest = ""
        self._given = 0

    def push(self, text: str) -> list[str]:
        """Add text and return the clauses it completed, each with something to pronounce."""
        self._rest += text
        clauses: list[str] = []
        while (end := self._next_end()) is not None:
            self._take(end, clauses)
        return clauses

    def finish(self) -> list[str]:
        """The clauses left when no more text comes."""
        clauses: list[str] = []
        while (end := self._next_end()) is not None:
            self._take(end, clauses)
        self._take(len(self._rest), clauses)
        return clauses

    def _take(self, end: int, clauses: list[str]) -> None:
        clause, self._rest = self._rest[:end].strip(), self._rest[end:]
        if _SPOKEN.search(clause):
            clauses.append(clause)
            self._given += 1

    def _next_end(self) -> int | None:
        ends = [m.end() for m in _SENTENCE_END.finditer(self._rest) if not self._inside(m.end())]
        least = self._later_words if self._given else self._first_words
        soft = [m.end() for m in _CLAUSE_END.finditer(self._rest) if len(self._rest[: m.end()].split()) >= least]
        found = [*ends[:1], *soft[:1]]
        end = min(found) if found else None
        if self._given == 0 and (breath := self._breath(end)) is not None:
            return breath
        if (end is None or end > self._most_chars) and len(self._rest) > self._most_chars:
            space = self._rest.rfind(" ", 1, self._most_chars)
            return space if space > 0 else self._most_chars
        return end

    def _breath(self, end: int | None) -> int | None:
        """Where a long first clause is cut, once it is known to be long; None while it may still end by itself."""
        words = list(re.finditer(r"\S+(?=\s)", self._rest if end is None else self._rest[:end]))
        if len(words) <= self._breath_words:
            return None
        limit = words[self._breath_words].start()
        # A phrase of one word is none: at least three stand before the cut.
        cuts = [m.start() for m in _CONNECTING.finditer(self._rest, words[2].end())]
        early = [cut for cut in cuts if cut < limit]
        return early[-1] if early else cuts[0] if cuts else None

    def _inside(self, end: int) -> bool:
        """Whether the full stop before ``end`` belongs to an abbreviation or a list number."""
        return _ABBREVIATION.search(self._rest[:end]) is not None
