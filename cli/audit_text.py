"""An `Audit` for people: the verdict, its reason, every check, what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brace_diag.number_words import interval, number, short

from .gap_text import quality_text
from .tables import Column, on_the_point, table
from .terminal import Terminal

if TYPE_CHECKING:
    from brace_diag.results_audit import Audit, AuditCheck

STATUS_STYLES = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "red"}
VERDICT_STYLES = {
    "negligible": "green",
    "needs_correction": "red",
    "invalid": "red",
    "no_staleness": "yellow",
    "needs_probe": "yellow",
    "inconclusive": "yellow",
}


def headline(found: Audit) -> str:
    """The verdict in a sentence, beside its name."""
    return f"{found.verdict}: {found.sentence}"


def sentence_case(text: str) -> str:
    """Words that begin a sentence."""
    return text[:1].upper() + text[1:]


def audit_text(found: Audit, terminal: Terminal, remarks: Sequence[str] = ()) -> str:
    """The whole answer as text, with a newline at its end.

    Args:
        remarks: sentences about the log's columns.
    """
    blocks = [
        verdict_lines(found, terminal),
        _checks(found.checks, terminal),
        _by_step(found, terminal),
        quality_text(found.quality, terminal, found.source, remarks),
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks if block)


def verdict_lines(found: Audit, terminal: Terminal) -> list[str]:
    """The verdict, why, its numbers, what to do."""
    own = found.overall
    name = terminal.paint(found.verdict, VERDICT_STYLES[found.verdict])
    lines = [f"{name}: {terminal.paint(found.sentence, 'bold')}"]
    lines += terminal.paragraph(f"{own.reason}.", "  ", "  ")
    b = own.b_hat
    if b.value is not None and found.verdict != "invalid":
        ends = interval(b.ci_low, b.ci_high, b.se, sign=True)
        lines.append(
            f"  b = {number(b.value, b.se, sign=True)} ({100 * b.level:g}% interval {ends}), "
            f"margin {number(own.margin)}, {b.n_rollouts:,} rollouts, {b.n_clusters} clusters of "
            "prompts"
        )
    if own.next is not None:
        lines += terminal.paragraph(own.next, "  -> ", "     ")
    if found.recommendation is not None:
        why = sentence_case(found.recommendation.reason)
        lines += terminal.paragraph(f"{why}.", "     ", "     ")
    return lines


def _checks(checks: Sequence[AuditCheck], terminal: Terminal) -> list[str]:
    lines = [terminal.paint("Checks", "bold")]
    for check in checks:
        mark = terminal.paint(check.status.ljust(4), STATUS_STYLES[check.status])
        first, *rest = terminal.paragraph(f"{check.id}: {check.message}", " " * 8, " " * 8)
        lines += [f"  {mark}  {first.lstrip()}", *rest]
        if check.status in ("warn", "fail") and check.source is not None:
            held = f"held against {number(check.threshold)}" if check.threshold is not None else ""
            why = f"{held} ({check.source})" if held else check.source
            lines += terminal.paragraph(why, " " * 8, " " * 8)
        if check.next is not None:
            lines += terminal.paragraph(check.next, " " * 8 + "-> ", " " * 11)
    return lines


def _by_step(found: Audit, terminal: Terminal) -> list[str]:
    if not found.by:
        return []
    own = list(found.by.values())
    estimates = [j.b_hat for j in own]
    columns = [
        Column("step", [f"{key:,}" for key in found.by]),
        Column("verdict", [j.verdict for j in own], left=True, style=VERDICT_STYLES.get),
        Column("b", on_the_point([number(b.value, b.se, sign=True) for b in estimates])),
        Column(
            f"{100 * found.settings.level:g}% interval",
            on_the_point([interval(b.ci_low, b.ci_high, b.se, sign=True) for b in estimates]),
        ),
        Column("margin", on_the_point([number(j.margin) for j in own]), rank=1),
        Column("v", on_the_point([short(j.within_var_log_product) for j in own]), rank=1),
        Column("rollouts", [f"{b.n_rollouts:,}" for b in estimates], rank=2),
    ]
    return [terminal.paint("By step", "bold"), *table(columns, terminal)]
