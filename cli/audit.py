"""`brace-diag audit`: the verdict on a log, for people, for programs, for CI."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from . import options as opt
from .audit_ci import markdown, workflow_commands
from .audit_text import audit_text
from .document import result_document
from .progress import progress
from .sources import column_remarks, open_fresh, open_with_critic, source_block
from .terminal import Terminal, emit
from .tracker import check_tracker, log_result

if TYPE_CHECKING:
    from brace_diag.results_audit import Audit, Verdict

    from .sources import OpenedRun

EXIT_CORRECTION = 1
EXIT_CANNOT_JUDGE = 3


def audit(
    source: list[str],
    *,
    by: opt.AuditBy | None,
    margin: float,
    fail_on: opt.FailOn | None,
    baseline: opt.Baseline,
    gamma: float,
    level: float,
    fresh: str | None,
    critic: opt.Critic,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    output_format: opt.OutputFormat,
    log_to: str | None,
    threads: int | None,
    quiet: bool,
) -> int:
    """Run the command and return its exit code."""
    check_tracker(log_to, by_step=by is not None)
    from brace_diag.settings import AuditSettings
    from brace_diag.verdicts.audit import audit as judge

    settings = AuditSettings(
        gamma=gamma,
        level=level,
        baseline=baseline.value,
        by=None if by is None else "step",
        margin=margin,
    )
    run = open_with_critic(source, critic, format=format, map=map, steps=steps)
    drawn = open_fresh(fresh, format=format, map=map)
    with progress("auditing the log", quiet=quiet) as report:
        found = judge(run, settings, fresh=drawn, threads=threads, progress=report)
    emit(_written(found, output_format, source, steps, run))
    log_result(log_to, found, quiet=quiet)
    return exit_code(found.verdict, fail_on)


def exit_code(verdict: Verdict, fail_on: opt.FailOn | None) -> int:
    """0 unless asked; with `any` 3 where the log cannot be judged; 1 for needs_correction."""
    from brace_diag.results_audit import CANNOT_JUDGE

    if fail_on is None:
        return 0
    if verdict == "needs_correction":
        return EXIT_CORRECTION
    if verdict in CANNOT_JUDGE and fail_on is opt.FailOn.ANY:
        return EXIT_CANNOT_JUDGE
    return 0


def _written(
    found: Audit, how: opt.OutputFormat, source: list[str], steps: str | None, run: OpenedRun
) -> str:
    if how is opt.OutputFormat.JSON:
        return result_document("audit", source_block(source, steps, run), found)
    if how is opt.OutputFormat.GITHUB:
        return workflow_commands(found)
    if how is opt.OutputFormat.MARKDOWN:
        return markdown(found)
    return audit_text(found, Terminal.of(sys.stdout), column_remarks(run))
