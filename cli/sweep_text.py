"""A `Sweep` for people: what to train with, then every setting's share and price."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from brace_diag.number_words import MISSING, interval, number, share

from .audit_text import sentence_case
from .gap_text import bullets, quality_text
from .tables import Column, table
from .terminal import Terminal

if TYPE_CHECKING:
    from brace_diag.results_sweep import Sweep, SweepSetting

ALL = math.inf


def sweep_text(found: Sweep, terminal: Terminal, remarks: Sequence[str] = ()) -> str:
    """The whole answer as text, with a newline at its end.

    Args:
        remarks: sentences about the log's columns.
    """
    blocks = [
        _advice(found, terminal),
        _shares(found, terminal),
        _prices(found, terminal),
        quality_text(found.quality, terminal, found.source, remarks),
        bullets("Notes", found.notes, terminal),
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks if block)


def _advice(found: Sweep, terminal: Terminal) -> list[str]:
    own = found.recommendation
    lines = [terminal.paint("No settings to recommend", "yellow")]
    why = found.no_recommendation or "no setting has a share"
    if own is not None:
        lines = [f"Train the critic on {terminal.paint(own.label, 'bold')}"]
        why = own.reason
    lines += terminal.paragraph(f"{sentence_case(why)}.", "  ", "  ")
    b = found.b_hat
    if b.value is not None:
        ends = interval(b.ci_low, b.ci_high, b.se, sign=True)
        lines.append(
            f"  b = {number(b.value, b.se, sign=True)} ({100 * b.level:g}% interval {ends}), gate "
            f"{found.gate}, {b.n_rollouts:,} rollouts, {b.n_clusters} clusters of prompts"
        )
    return lines


def _shares(found: Sweep, terminal: Terminal) -> list[str]:
    if not found.points:
        return []
    title = "Share of the gap that a critic fitted to the end recovers, by window k, ± its error"
    lines = [terminal.paint(title, "bold"), *_matrix(found, terminal, _share_cell)]
    if found.doubt is not None:
        lines += terminal.paragraph(f"not to be relied on: {found.doubt}", "  ", "  ")
    bounds = {found.column_of(p): p.residual_bound for p in found.points}
    told = [f"{_k(k)}: {number(bound)}" for k, bound in sorted(bounds.items()) if bound is not None]
    if told:
        lines += terminal.paragraph(
            "largest |b| from position k on, which bounds what a window of k leaves: "
            + ", ".join(told),
            "  ",
            "  ",
        )
    return lines


def _share_cell(point: SweepSetting) -> str:
    value, se = point.share.value, point.share.se
    if value is None:
        return MISSING
    if se is None:
        return share(value)
    return f"{100 * value:.0f} ±{100 * se:.0f}%" if abs(value) < 10 and se < 1 else "unknown"


def _prices(found: Sweep, terminal: Terminal) -> list[str]:
    if not found.points:
        return []
    variance = "Variance of target - V, as a part of the return's (G - V)"
    pull = "Pull: the weight of the realised return in a response's first target"
    return [
        terminal.paint(variance, "bold"),
        *_matrix(found, terminal, lambda p: number(p.variance_ratio.value)),
        "",
        terminal.paint(pull, "bold"),
        *_matrix(found, terminal, lambda p: share(p.pull.value), by_c_bar=True),
    ]


def _matrix(
    found: Sweep,
    terminal: Terminal,
    cell: Callable[[SweepSetting], str],
    *,
    by_c_bar: bool = False,
) -> list[str]:
    """A row for each pair of caps (or c_bar alone, where rho_bar has no part), a column for each k.

    Windows that hold the longest response are one column.
    """
    windows = sorted({found.column_of(p) for p in found.points})
    rows: dict[tuple[float, ...], dict[float, SweepSetting]] = {}
    for point in found.points:
        caps = (point.c_bar,) if by_c_bar else (point.rho_bar, point.c_bar)
        rows.setdefault(caps, {})[found.column_of(point)] = point
    own = list(rows.values())
    first = [next(iter(row.values())) for row in own]
    columns = [Column("c_bar", [f"{p.c_bar:g}" for p in first])]
    clipped = [Column("w > c_bar", [share(p.clip_share_c.value) for p in first], rank=1)]
    if not by_c_bar:
        columns.insert(0, Column("rho_bar", [f"{p.rho_bar:g}" for p in first]))
        clipped = []
    for k in windows:
        cells = [cell(row[k]) if k in row else "" for row in own]
        columns.append(Column(f"k={_k(k)}", cells, rank=2))
    return table([*columns, *clipped], terminal)


def _k(k: float) -> str:
    return "all" if k == ALL else f"{k:g}"
