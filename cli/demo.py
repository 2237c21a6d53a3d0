"""`brace-diag demo`: audit the log that the package ships, and hold its gap against the truth."""

from __future__ import annotations

import json as json_module
import math
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brace_diag.number_words import number, short

from . import options as opt
from .audit_text import verdict_lines
from .bias import draw, measure
from .document import document
from .files import refuse_to_replace, whole_file
from .gap_text import gap_text
from .progress import progress
from .report import check_page, write_page
from .sources import open_source, source_block
from .tables import Column, on_the_point, table
from .terminal import Terminal, emit, say

if TYPE_CHECKING:
    from brace_diag.readers import Run
    from brace_diag.results import Curve, Estimate, ValueGap
    from brace_diag.results_audit import Audit
    from brace_diag.results_report import Findings

LOG = "demo.parquet"
NAME = "the shipped log"


@dataclass(frozen=True, slots=True)
class Probe:
    """The true gap at one step and position, measured by fresh continuations; b_se is its error."""

    step: int
    position: int
    b: float
    b_se: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """An estimate from the log beside the measured truth; z is their difference in joint errors."""

    step: int
    position: int
    estimate: float | None
    se: float | None
    truth: float
    truth_se: float
    z: float | None


def demo(
    *,
    save_log: Path | None,
    plot: Path | None,
    report: Path | None,
    json: bool,
    level: float,
    force: bool,
    quiet: bool,
) -> None:
    """Run the command."""
    from brace_diag.settings import GapSettings

    settings = GapSettings(level=level, by="step", by_positions=True)
    opt.check_plot(plot)
    check_page(report, "--report", force=force)
    if save_log is not None:
        opt.check_folder(save_log, "--save-log")
        refuse_to_replace(save_log, force=force)
    data = files("brace_diag") / "data"
    with as_file(data / LOG) as path:
        run = open_source([str(path)], format=opt.LogFormat.AUTO, map=None, steps=None)
        gap = replace(measure(run, settings, threads=None, quiet=quiet), source=NAME)
        judged = replace(_judged(run, level, quiet=quiet), source=NAME)
        if report is not None:
            write_page(_findings(run, level, quiet=quiet), report, force=force, quiet=quiet)
        if save_log is not None:
            with whole_file(save_log, force=force) as copy:
                shutil.copyfile(path, copy)
            say(f"wrote {save_log}", quiet=quiet)
    truth = json_module.loads((data / "demo.truth.json").read_text(encoding="utf-8"))
    compared = compare(gap, probes_of(truth))
    if json:
        emit(_document(source_block([LOG], None, run), gap, judged, compared))
    else:
        terminal = Terminal.of(sys.stdout)
        emit(
            demo_text(gap, judged, compared, what=truth["what"], saved=save_log, terminal=terminal)
        )
    draw(replace(gap, settings=replace(settings, by=None), by=()), plot, quiet=quiet)


def _judged(run: Run, level: float, *, quiet: bool) -> Audit:
    from brace_diag.settings import AuditSettings
    from brace_diag.verdicts.audit import audit

    with progress("auditing the log", quiet=quiet) as tell:
        return audit(run, AuditSettings(level=level), progress=tell)


def _findings(run: Run, level: float, *, quiet: bool) -> Findings:
    from brace_diag.settings import AuditSettings
    from brace_diag.verdicts.findings import gather_findings

    with progress("asking every question", quiet=quiet) as tell:
        found = gather_findings(run, AuditSettings(level=level), progress=tell)
    return replace(found, audit=replace(found.audit, source=NAME))


def probes_of(truth: dict[str, Any]) -> list[Probe]:
    """The measured gaps of a truth file, in order of step and position."""
    found = [Probe(p["step"], p["position"], p["b"], p["b_se"]) for p in truth["probes"]]
    return sorted(found, key=lambda probe: (probe.step, probe.position))


def compare(gap: ValueGap, probes: Sequence[Probe]) -> list[Comparison]:
    """Every probe beside the estimate of its step and position."""
    curves = {entry.key: entry.gap for entry in gap.by}
    return [
        _comparison(probe, _estimate_at(curves[probe.step], probe.position))
        for probe in probes
        if probe.step in curves
    ]


def _estimate_at(curve: Curve, position: int) -> Estimate | None:
    return next((c.estimate for c in curve.cells if c.low <= position <= c.high), None)


def _comparison(probe: Probe, estimate: Estimate | None) -> Comparison:
    value = None if estimate is None else estimate.value
    se = None if estimate is None else estimate.se
    z = None
    if value is not None and se is not None:
        z = (value - probe.b) / math.hypot(se, probe.b_se)
    return Comparison(probe.step, probe.position, value, se, probe.b, probe.b_se, z)


def rms_z(compared: Sequence[Comparison]) -> float | None:
    """Root mean square of z over steps, at the first token: about 1 where intervals are honest."""
    z = [c.z for c in compared if c.position == 0 and c.z is not None]
    return math.sqrt(sum(x * x for x in z) / len(z)) if z else None


def _document(
    source: dict[str, Any], gap: ValueGap, judged: Audit, compared: Sequence[Comparison]
) -> str:
    return document(
        "demo",
        source=source,
        settings=gap.settings.to_dict(),
        quality=gap.quality.to_dict(),
        results=gap.to_dict()
        | {"audit": judged.to_dict()}
        | {"truth": {"rms_z": rms_z(compared), "probes": [asdict(c) for c in compared]}},
        notes=gap.notes,
    )


def demo_text(
    gap: ValueGap,
    judged: Audit,
    compared: Sequence[Comparison],
    *,
    what: str,
    saved: Path | None,
    terminal: Terminal,
) -> str:
    """The verdict as `audit` prints it, the gap as `bias` does, the truth, and what to try next.

    Args:
        what: what the log is, in a sentence.
        saved: where the log was copied to.
    """
    shown = replace(gap, settings=replace(gap.settings, by_positions=False))
    blocks = [
        terminal.paragraph(f"The shipped log: {what}"),
        verdict_lines(judged, terminal),
        gap_text(shown, terminal).rstrip("\n").split("\n"),
        _truth(compared, terminal),
        _next(saved, terminal),
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks if block)


def _truth(compared: Sequence[Comparison], terminal: Terminal) -> list[str]:
    first = [c for c in compared if c.position == 0]
    if not first:
        return []
    columns = [
        Column("step", [str(c.step) for c in first]),
        Column("b from the log", on_the_point([_with_se(c.estimate, c.se) for c in first])),
        Column("true b", on_the_point([_with_se(c.truth, c.truth_se) for c in first])),
        Column("z", on_the_point([_signed(c.z) for c in first])),
    ]
    head = (
        "Against the truth: fresh continuations were drawn from both policies at the time, and "
        "their difference is the true gap, with an error of its own"
    )
    lines = [*terminal.paragraph(head), *table(columns, terminal)]
    rms = rms_z(compared)
    if rms is not None:
        lines.append(f"  z is the difference in joint errors; its r.m.s. is {short(rms)}")
    return lines


def _with_se(value: float | None, se: float | None) -> str:
    if value is None or se is None:
        return "-"
    return f"{number(value, se, sign=True)} +- {number(se, se)}"


def _signed(z: float | None) -> str:
    return "-" if z is None else f"{round(z, 1) + 0.0:+.1f}"


def _next(saved: Path | None, terminal: Terminal) -> list[str]:
    log = str(saved) if saved is not None else LOG
    commands = [
        (f"brace-diag inspect {log}", "what is in a log, and what it can answer"),
        (f"brace-diag report {log} -o report.html", "every question on one page, with figures"),
        (f"brace-diag bias {log} --by step --plot gap.png", "the gap as a figure, step by step"),
        ("brace-diag simulate --list", "logs whose true gap is known exactly"),
    ]
    if saved is None:
        commands.insert(0, (f"brace-diag demo --save-log {LOG}", "keep this log"))
        commands.pop()
    width = max(len(command) for command, _ in commands)
    rows = [f"  {command.ljust(width)}  {what}" for command, what in commands]
    return [terminal.paint("Next", "bold"), *rows]
