"""Aligned columns of text; colours are added after the widths are measured."""

from collections.abc import Sequence

from reconciler.cli.render.paint import Paint


def table(head: Sequence[str], rows: Sequence[Sequence[str]], paint: Paint, states: frozenset[str]) -> list[str]:
    """The lines of a table.

    Args:
        head: the names of the columns.
        rows: the cells; each row as long as `head`.
        paint: the colours.
        states: names of the columns that hold states, which are coloured by their meaning.
    """
    widths = [max(len(row[index]) for row in [head, *rows]) for index in range(len(head))]
    lines = [paint.dim("  ".join(name.ljust(width) for name, width in zip(head, widths, strict=True)).rstrip())]
    for row in rows:
        cells = []
        for name, cell, width in zip(head, row, widths, strict=True):
            padded = cell.ljust(width)
            cells.append(paint.state(cell, padded) if name in states else padded)
        lines.append("  ".join(cells).rstrip())
    return lines
