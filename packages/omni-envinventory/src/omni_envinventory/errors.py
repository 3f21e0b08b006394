"""What this package raises: one small tree.

``EnvInventoryError`` is the root. Errors carry fields and also subclass the builtin that a caller would catch.
"""

from __future__ import annotations


class EnvInventoryError(Exception):
    """Root of everything this package raises on purpose."""


class InventoryError(EnvInventoryError, ValueError):
    """An inventory that says something it must not.

    Attributes:
        source: The file, or ``<python>`` for an inventory built in code.
        line: Line in the file, 0 if there is none.
        problem: What is wrong.
    """

    def __init__(self, source: str, line: int, problem: str) -> None:
        self.source = source
        self.line = line
        self.problem = problem
        super().__init__(f"{source}:{line}: {problem}" if line else f"{source}: {problem}")


class DuplicateNameError(InventoryError):
    """A variable declared twice."""


class UnknownFieldError(InventoryError):
    """A field that no record has."""


class UnknownValueError(InventoryError):
    """A field with a value it cannot have."""


class MissingFieldError(InventoryError):
    """A record without a field that its other fields call for, such as a deprecated one without a replacement."""


class InventoryNotFoundError(EnvInventoryError, FileNotFoundError):
    """No inventory where one was expected.

    Attributes:
        source: Where it was looked for.
    """

    def __init__(self, source: str) -> None:
        self.source = source
        super().__init__(f"no inventory at {source}")


class SourceNotFoundError(EnvInventoryError, FileNotFoundError):
    """A path to scan that does not exist.

    Attributes:
        path: The path.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"no such file or folder to scan: {path}")


class SnapshotError(EnvInventoryError, ValueError):
    """A snapshot file that is not one.

    Attributes:
        source: The file.
        problem: What is wrong with it.
    """

    def __init__(self, source: str, problem: str) -> None:
        self.source = source
        self.problem = problem
        super().__init__(f"{source}: {problem}")
