"""A `Comparison` for people: what differs, every figure, the gap by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brace_diag.number_words import interval, number
from brace_diag.results_trend import SERIES

from .gap_text import bullets, quality_text
from .tables import Column, on_the_point, table
from .terminal import Terminal
from .trend_text import HEADS, SIGNED

if TYPE_CHECKING:
    from brace_diag.results_compare import Comparison, Difference


def compare_text(found: Comparison, terminal: Terminal) -> str:
    """The whole answer as text, with a newline at its end."""
    blocks = [
        _headline(found, terminal),
        _figures(found, terminal),
        _cells(found, terminal),
        quality_text(found.a.quality, terminal, f"a: {found.a.source}", ()),
        quality_text(found.b.quality, terminal, f"b: {found.b.source}", ()),
        bullets("Notes", found.notes, terminal),
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks if block)


def _headline(found: Comparison, terminal: Terminal) -> list[str]:
    own, level = found.figure("b_hat"), found.settings.level
    gap = own.difference
    if found.a.invalid or found.b.invalid:
        which, why = ("a", found.a.invalid) if found.a.invalid else ("b", found.b.invalid)
        lines = terminal.paragraph(f"The gaps cannot be compared. {which}: {why}", "", "  ")
    elif gap.value is None:
        lines = terminal.paragraph(f"The gaps cannot be compared: {gap.reason}", "", "  ")
    elif gap.ci_low is None:
        lines = terminal.paragraph(
            f"The gaps cannot be told apart without an interval: b less a is "
            f"{number(gap.value, sign=True)}; {gap.reason}",
            "",
            "  ",
        )
    else:
        size = f"{number(gap.value, gap.se, sign=True)} ({100 * level:g}% interval "
        size += f"{interval(gap.ci_low, gap.ci_high, gap.se, sign=True)})"
        told = gap.ci_low is not None and gap.ci_high is not None
        apart = told and not gap.ci_low <= 0.0 <= gap.ci_high  # type: ignore[operator]
        text = "The gaps at the first token differ" if apart else "The gaps are not told apart"
        lines = [terminal.paint(f"{text}: b less a is {size}", "bold")]
    alpha = 1.0 - level
    apart_too = [
        HEADS[one.name] for one in found.figures if one.p_holm is not None and one.p_holm < alpha
    ]
    which = ", ".join(apart_too) if apart_too else "nothing"
    tested = sum(one.p_value is not None for one in found.figures)
    lines += terminal.paragraph(
        f"of {tested} figures, what differs at the {alpha:.2g} level for all at once (Holm): "
        f"{which}",
        "  ",
        "  ",
    )
    how = "differences are paired by prompt" if found.paired else "as independent logs"
    lines.append(f"  {how}: {found.n_shared_prompts:,} prompts are in both")
    return lines


def _figures(found: Comparison, terminal: Terminal) -> list[str]:
    shown = [one for one in found.figures if one.a.value is not None or one.b.value is not None]
    if not shown:
        return []
    percent = f"{100 * found.settings.level:g}% interval"
    columns = [
        Column("figure", [HEADS[one.name] for one in shown], left=True),
        *_columns(shown, percent),
        Column("", [SERIES[one.name] for one in shown], left=True, rank=3),
    ]
    lines = [terminal.paint("Figures", "bold"), *table(columns, terminal)]
    doubts = {one.difference.reason for one in shown if one.difference.reason is not None}
    for doubt in sorted(doubts):
        lines += terminal.paragraph(f"not to be relied on where {doubt}", "  ", "  ")
    return lines


def _cells(found: Comparison, terminal: Terminal) -> list[str]:
    if not found.cells:
        return []
    percent = f"{100 * found.settings.level:g}% interval"
    spans = [
        f"{one.low:,}" if one.low == one.high else f"{one.low:,}-{one.high:,}"
        for one in found.cells
    ]
    head = terminal.paint("Gap by token position", "bold")
    return [head, *table([Column("position", spans), *_columns(found.cells, percent)], terminal)]


def _columns(shown: Sequence[Difference], percent: str) -> list[Column]:
    def values(which: str) -> list[str]:
        return on_the_point(
            [
                number(
                    getattr(one, which).value,
                    getattr(one, which).se,
                    sign=which == "difference" or one.name in SIGNED or one.name == "gap",
                )
                for one in shown
            ]
        )

    ends = [
        interval(
            one.difference.ci_low, one.difference.ci_high, one.difference.se or None, sign=True
        )
        for one in shown
    ]
    return [
        Column("a", values("a")),
        Column("b", values("b")),
        Column("b - a", values("difference")),
        Column(percent, on_the_point(ends)),
        Column("p", on_the_point([_p(one.p_value) for one in shown]), rank=2),
        Column("p (Holm)", on_the_point([_p(one.p_holm) for one in shown]), rank=1),
    ]


def _p(p: float | None) -> str:
    if p is None:
        return "-"
    return "<.001" if p < 0.001 else f"{p:.3f}"
