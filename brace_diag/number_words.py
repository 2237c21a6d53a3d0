"""Numbers as text: as many digits as their error allows."""

from __future__ import annotations

import math

MAX_PLACES = 8
MISSING = "-"


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
