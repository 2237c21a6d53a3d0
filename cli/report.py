"""`brace-diag report`: everything that a log tells, as one page to open, keep or send."""

from __future__ import annotations

from pathlib import Path

from brace_diag.errors import InputError

from . import options as opt
from .files import refuse_to_replace, whole_file
from .progress import progress
from .sources import open_with_critic
from .terminal import say


def report(
    source: list[str],
    *,
    output: Path,
    by: opt.AuditBy | None,
    margin: float,
    baseline: opt.Baseline,
    gamma: float,
    level: float,
    critic: opt.Critic,
    format: opt.LogFormat,
    map: list[str] | None,
    steps: str | None,
    threads: int | None,
    force: bool,
    quiet: bool,
) -> None:
    """Run the command."""
    if output.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--output {output}: a report is a page; let the name end in .html")
    opt.check_folder(output, "--output")
    refuse_to_replace(output, force=force)
    from brace_diag.settings import AuditSettings

    settings = AuditSettings(
        gamma=gamma,
        level=level,
        baseline=baseline.value,
        by=None if by is None else "step",
        margin=margin,
    )
    run = open_with_critic(source, critic, format=format, map=map, steps=steps)
    from brace_diag.report.render import render_report
    from brace_diag.verdicts.findings import gather_findings

    with progress("asking every question", quiet=quiet) as tell:
        found = gather_findings(run, settings, threads=threads, progress=tell)
    page = render_report(found)
    with whole_file(output, force=force) as temporary:
        temporary.write_text(page, encoding="utf-8")
    say(f"wrote {output}: {found.audit.verdict}", quiet=quiet)
