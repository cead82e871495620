"""Columns of text that line up, with colour put on after measuring."""

from collections.abc import Callable, Sequence

from reconciler.cli.render.paint import Paint

Colour = Callable[[str, str], str]
"""(the cell's text, the same padded) -> what is printed."""


def table(head: Sequence[str], rows: Sequence[Sequence[str]], paint: Paint, words: frozenset[str]) -> list[str]:
    """The lines of a table.

    Args:
        head: the names of the columns.
        rows: the cells; each row as long as `head`.
        paint: the colours.
        words: names of the columns that hold words of state, which are coloured by their meaning.
    """
    widths = [max(len(row[index]) for row in [head, *rows]) for index in range(len(head))]
    lines = [paint.dim("  ".join(name.ljust(width) for name, width in zip(head, widths, strict=True)).rstrip())]
    for row in rows:
        cells = []
        for name, cell, width in zip(head, row, widths, strict=True):
            padded = cell.ljust(width)
            cells.append(paint.word(cell, padded) if name in words else padded)
        lines.append("  ".join(cells).rstrip())
    return lines
