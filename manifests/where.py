"""Where a document or value stands in its tree. Kept apart so that all modules of resolved values can use it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a document or value: path relative to the tree's root, line and column counted from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


NOWHERE = Where("", 0, 0)
