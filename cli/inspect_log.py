"""`brace-diag inspect`: what is in a log, what is odd about it, what it can answer."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from brace_diag.number_words import counted, number, share

from . import options as opt
from .answers import Answer, answers
from .document import document
from .gap_text import quality_text
from .progress import progress
from .sources import open_source, source_block
from .tables import Column, table
from .terminal import Terminal, emit

if TYPE_CHECKING:
    from brace_diag.results import Check, Inspection

STATUS_STYLES = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "red"}


def inspect_log(
    source: list[str],
    *,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    json: bool,
    quiet: bool,
) -> None:
    """Run the command."""
    run = open_source(source, format=format, map=map, steps=steps)
    from brace_diag.engines.inspect import inspect_run

    with progress("looking at the log", quiet=quiet) as report:
        found = inspect_run(run, progress=report)
    can = answers(found.columns)
    if json:
        text = document(
            "inspect",
            source=source_block(source, steps, run),
            settings={},
            quality=found.quality.to_dict(),
            results=found.to_dict() | {"questions": [asdict(answer) for answer in can]},
            notes=[c.message for c in found.checks if c.status in ("warn", "fail")],
        )
    else:
        text = inspection_text(found, can, Terminal.of(sys.stdout))
    emit(text)


def inspection_text(found: Inspection, can: Sequence[Answer], terminal: Terminal) -> str:
    """The whole answer as text, with a newline at its end."""
    blocks = [
        [terminal.paint(line, "bold") for line in terminal.paragraph(_headline(found))],
        _columns(found, terminal),
        _summary(found, terminal),
        _checks(found.checks, terminal),
        _questions(can, terminal),
        quality_text(found.quality, terminal, found.source, ()),
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks)


def _headline(found: Inspection) -> str:
    failed = [check.id for check in found.checks if check.status == "fail"]
    warned = [check.id for check in found.checks if check.status == "warn"]
    if failed:
        return (
            f"{found.source}: not fit to be judged as it is ({', '.join(failed)}); "
            "the checks below say what to mend"
        )
    if warned:
        return f"{found.source}: can be read, with {counted(len(warned), 'warning')}"
    return f"{found.source}: no check found anything wrong"


def _columns(found: Inspection, terminal: Terminal) -> list[str]:
    rows = list(found.columns.items())
    columns = [
        Column("column", [name for name, _ in rows], left=True),
        Column("taken from", [theirs for _, theirs in rows], left=True),
    ]
    lines = table(columns, terminal)
    if found.unused:
        lines += terminal.paragraph(
            f"not used: {', '.join(found.unused)} (give one a meaning with --map CANONICAL=NAME)",
            "  ",
            "    ",
        )
    return lines


def _summary(found: Inspection, terminal: Terminal) -> list[str]:
    told = found.summary
    rows = [
        ("prompts", _number(told.get("n_prompts"))),
        ("policy tokens a rollout", _range(told, "length_min", "length_median", "length_max")),
        ("trainer steps", _range(told, "step_first", "step_last")),
        *_staleness(told),
        ("return", _range(told, "reward_min", "reward_mean", "reward_max")),
        ("mean |log pi/mu| a token", _number(told.get("mean_abs_log_w"))),
        ("mean pi/mu a token", _number(told.get("mean_weight"), 1e-4)),
    ]
    width = max(len(name) for name, _ in rows)
    return [terminal.paint("Summary", "bold"), *(f"  {n.ljust(width)}  {text}" for n, text in rows)]


def _staleness(told: Mapping[str, float | int | None]) -> list[tuple[str, str]]:
    """Lines of staleness: of first tokens, and what else the versions tell."""
    ends = _range(told, "staleness_min", "staleness_median", "staleness_max")
    unknown = told.get("staleness_unknown_share")
    if unknown and told.get("staleness_min") is not None:
        ends += f"; unknown for {share(unknown)} of the rollouts"
    lines = [("staleness in versions", ends)]
    in_flight = told.get("in_flight_share")
    if in_flight is not None:
        most = told.get("in_flight_span_max")
        text = f"{share(in_flight)} of the rollouts" + (
            f", up to {counted(int(most), 'version')}" if most else ""
        )
        lines.append(("weights changed in flight", text))
    return lines


def _range(told: Mapping[str, float | int | None], *names: str) -> str:
    """Numbers of the summary: smallest to largest, the middle one by its name."""
    values = [told.get(name) for name in names]
    if values[0] is None or values[-1] is None:
        return "not told by the log"
    ends = f"{_number(values[0])} to {_number(values[-1])}"
    if len(names) < 3:
        return ends
    return f"{ends}, {names[1].rpartition('_')[2]} {_number(values[1])}"


def _number(value: float | int | None, error: float | None = None) -> str:
    if value is None:
        return "not told by the log"
    if error is None and float(value).is_integer():
        return f"{int(value):,}"
    return number(value, error)


def _checks(checks: Sequence[Check], terminal: Terminal) -> list[str]:
    lines = [terminal.paint("Checks", "bold")]
    for check in checks:
        mark = terminal.paint(check.status.ljust(4), STATUS_STYLES[check.status])
        first, *rest = terminal.paragraph(f"{check.id}: {check.message}", " " * 8, " " * 8)
        lines += [f"  {mark}  {first.lstrip()}", *rest]
        if check.next is not None:
            lines += terminal.paragraph(check.next, " " * 8 + "-> ", " " * 11)
    return lines


def _questions(can: Sequence[Answer], terminal: Terminal) -> list[str]:
    columns = [
        Column(
            "",
            ["yes" if answer.possible else "no" for answer in can],
            left=True,
            style={"yes": "green", "no": "red"}.get,
        ),
        Column("command", [f"brace-diag {answer.command}" for answer in can], left=True),
        Column("answers", [_question(answer) for answer in can], left=True),
    ]
    return [terminal.paint("What this log can answer", "bold"), *table(columns, terminal)]


def _question(answer: Answer) -> str:
    return f"{answer.question}; {answer.reason}" if answer.reason else answer.question
