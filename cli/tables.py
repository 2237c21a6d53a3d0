"""Numbers as text, and text in aligned columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .terminal import Terminal

MAX_PLACES = 8
MISSING = "-"
GAP = "  "


def places(se: float | None) -> int | None:
    """Decimals that show two significant digits of an error; None where it tells nothing."""
    if se is None or not math.isfinite(se) or se <= 0.0:
        return None
    return max(0, 1 - math.floor(math.log10(se)))


def number(value: float | None, se: float | None = None, *, sign: bool = False) -> str:
    """A number to the two significant digits of its error; to three of its own without one."""
    if value is None or not math.isfinite(value):
        return MISSING
    plus = "+" if sign else ""
    decimals = places(se)
    if decimals is None:
        decimals = 3 if value == 0.0 else max(0, 2 - math.floor(math.log10(abs(value))))
    if decimals > MAX_PLACES:
        return f"{value:{plus}.2e}"
    # Adding 0 turns the -0.0 that rounding leaves into 0.0.
    return f"{round(value, decimals) + 0.0:{plus},.{decimals}f}"


def short(value: float | None) -> str:
    """A companion number: two decimals, or three significant digits of a large one."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{round(value, 2) + 0.0:.2f}" if abs(value) < 100 else f"{value:.3g}"


def share(value: float | None) -> str:
    """A share as a percentage."""
    return MISSING if value is None or not math.isfinite(value) else f"{100 * value:.0f}%"


def counted(n: int, thing: str) -> str:
    """A count and what is counted: 1 row, 2 rows."""
    return f"{n:,} {thing}" + ("" if n == 1 else "s")


def interval(low: float | None, high: float | None, se: float | None, *, sign: bool = False) -> str:
    """Both ends of an interval, or a dash."""
    if low is None or high is None:
        return MISSING
    return f"{number(low, se, sign=sign)} .. {number(high, se, sign=sign)}"


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
