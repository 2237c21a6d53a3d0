"""`brace-diag report`: everything that a log tells, as one page to open, keep or send."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from brace_diag.errors import InputError

from . import options as opt
from .files import refuse_to_replace, whole_file
from .progress import progress
from .sources import open_with_critic
from .terminal import say

if TYPE_CHECKING:
    from brace_diag.results_report import Findings


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
    check_page(output, "--output", force=force)
    from brace_diag.settings import AuditSettings

    settings = AuditSettings(
        gamma=gamma,
        level=level,
        baseline=baseline.value,
        by=None if by is None else "step",
        margin=margin,
    )
    run = open_with_critic(source, critic, format=format, map=map, steps=steps)
    from brace_diag.verdicts.findings import gather_findings

    with progress("asking every question", quiet=quiet) as tell:
        found = gather_findings(run, settings, threads=threads, progress=tell)
    write_page(found, output, force=force, quiet=quiet)


def check_page(path: Path | None, option: str, *, force: bool) -> None:
    """Refuse a page's name before anything is computed for it."""
    if path is None:
        return
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"{option} {path}: a report is a page; let the name end in .html")
    opt.check_folder(path, option)
    refuse_to_replace(path, force=force)


def write_page(found: Findings, path: Path, *, force: bool, quiet: bool) -> None:
    """The page, whole or not at all."""
    from brace_diag.report.render import render_report

    page = render_report(found)
    with whole_file(path, force=force) as temporary:
        temporary.write_text(page, encoding="utf-8")
    say(f"wrote {path}: {found.audit.verdict}", quiet=quiet)
