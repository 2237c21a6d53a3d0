"""Text in aligned columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .terminal import Terminal

GAP = "  "


def on_the_point(cells: Sequence[str]) -> list[str]:
    """Cells padded on the right so that their decimal points stand below each other."""
    tails = [len(cell) - cell.index(".") if "." in cell else 0 for cell in cells]
    longest = max(tails, default=0)
    return [cell + " " * (longest - tail) for cell, tail in zip(cells, tails, strict=True)]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        title: its head.
        cells: one text per row.
        left: align left; numbers stand right.
        rank: columns of a high rank go first where the terminal is too narrow; rank 0 never goes.
        style: the style of a cell by its text, or None.
    """

    title: str
    cells: Sequence[str]
    left: bool = False
    rank: int = 0
    style: Callable[[str], str | None] = field(default=lambda _: None)

    @property
    def width(self) -> int:
        return max(map(len, (self.title, *self.cells)))


def table(columns: Sequence[Column], terminal: Terminal, indent: str = "  ") -> list[str]:
    """Lines of a table; columns that do not fit are left out, and the last line says so."""
    shown = list(columns)
    while terminal.width is not None and _total(shown, indent) > terminal.width:
        rank = max(column.rank for column in shown)
        if rank == 0:
            break
        last = max(i for i, column in enumerate(shown) if column.rank == rank)
        del shown[last]
    lines = [indent + terminal.paint(_line(shown, [c.title for c in shown]), "bold")]
    for row in range(len(shown[0].cells)):
        cells = [column.cells[row] for column in shown]
        styles = [column.style(text) for column, text in zip(shown, cells, strict=True)]
        lines.append(indent + _line(shown, cells, styles, terminal))
    missing = [column.title for column in columns if column not in shown]
    if missing:
        lines.append(indent + f"(a wider terminal also shows: {', '.join(missing)})")
    return lines


def _total(columns: Sequence[Column], indent: str) -> int:
    return len(indent) + sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


def _line(
    columns: Sequence[Column],
    cells: Sequence[str],
    styles: Sequence[str | None] | None = None,
    terminal: Terminal | None = None,
) -> str:
    parts = []
    for i, (column, text) in enumerate(zip(columns, cells, strict=True)):
        padded = text.ljust(column.width) if column.left else text.rjust(column.width)
        if styles is not None and terminal is not None and styles[i] is not None:
            padded = padded.replace(text, terminal.paint(text, styles[i]), 1)
        parts.append(padded)
    return GAP.join(parts).rstrip()
