"""How many forks lie between this process and the import of this module.

A transport remembers the count it was opened under; in a child the count differs and the transport refuses. One hook
for the module, holding no transport.
"""

from __future__ import annotations

import os

generation = 0


def _in_child() -> None:
    global generation
    generation += 1


os.register_at_fork(after_in_child=_in_child)
