"""An `Audit` for CI: annotations of a GitHub workflow, and a comment in Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brace_diag.number_words import interval, number

from .audit_text import headline, sentence_case

if TYPE_CHECKING:
    from brace_diag.results_audit import Audit, AuditCheck

LEVELS = {"ok": None, "note": None, "warn": "warning", "fail": "error"}
VERDICT_LEVELS = {"needs_correction": "error", "invalid": "error", "negligible": "notice"}
MARKS = {"ok": "✓ ok", "note": "· note", "warn": "! warn", "fail": "✗ fail"}


def workflow_commands(found: Audit) -> str:
    """Workflow commands: the verdict, then a line for every check that warned or failed."""
    own = found.overall
    text = own.reason if own.next is None else f"{own.reason} -> {own.next}"
    level = VERDICT_LEVELS.get(found.verdict, "warning")
    lines = [_command(level, f"brace-diag: {headline(found)}", text)]
    for check in found.checks:
        shown = LEVELS[check.status]
        if shown is not None and check.message != own.reason:
            told = check.message if check.next is None else f"{check.message} -> {check.next}"
            lines.append(_command(shown, f"brace-diag {check.id}", told))
    return "\n".join(lines) + "\n"


def _command(level: str, title: str, text: str) -> str:
    """`::level title=...::text`, escaped as the runner reads it back."""
    return f"::{level} title={_escaped(title, ':,')}::{_escaped(text)}"


def _escaped(text: str, more: str = "") -> str:
    for letter in "%\r\n" + more:
        text = text.replace(letter, f"%{ord(letter):02X}")
    return text


def markdown(found: Audit) -> str:
    """A comment: the verdict, its numbers, the checks in a table."""
    own, b = found.overall, found.overall.b_hat
    lines = [f"### brace-diag: {headline(found)}", "", f"{_cell(own.reason)}."]
    if own.next is not None:
        lines += ["", f"**Next:** {_cell(own.next)}."]
    if found.recommendation is not None:
        lines += ["", f"{_cell(sentence_case(found.recommendation.reason))}."]
    if b.value is not None and found.verdict != "invalid":
        ends = interval(b.ci_low, b.ci_high, b.se, sign=True)
        lines += [
            "",
            f"b = {number(b.value, b.se, sign=True)} ({100 * b.level:g} % interval {ends}), margin "
            f"{number(own.margin)}, {b.n_rollouts:,} rollouts, {b.n_clusters} clusters of prompts.",
        ]
    lines += ["", "| | check | found | next |", "|---|---|---|---|"]
    lines += [_row(check) for check in found.checks]
    if found.by:
        lines += ["", "| step | verdict | b | margin |", "|---:|---|---:|---:|"]
        for key, one in found.by.items():
            gap = number(one.b_hat.value, one.b_hat.se, sign=True)
            lines.append(f"| {key} | {one.verdict} | {gap} | {number(one.margin)} |")
    lines += ["", f"<sub>{_cell(found.source)}, {found.quality.n_rollouts:,} rollouts</sub>"]
    return "\n".join(lines) + "\n"


def _row(check: AuditCheck) -> str:
    cells = (MARKS[check.status], f"`{check.id}`", _cell(check.message), _cell(check.next or ""))
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    """Text that stays in its cell and is read as text: log names may hold anything."""
    for letter, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(letter, entity)
    return " ".join(text.replace("|", "\\|").split())
