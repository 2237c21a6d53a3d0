"""How `brace-diag report` is called."""

from __future__ import annotations

from pathlib import Path

from .. import options as opt

NAME = "report"
SHORT_HELP = "Write one HTML page of everything that a log tells."


def command(
    source: opt.Sources,
    output: opt.ReportOption = Path("report.html"),
    by: opt.AuditByOption = None,
    margin: opt.MarginOption = 0.1,
    baseline: opt.BaselineOption = opt.Baseline.AUTO,
    gamma: opt.GammaOption = 1.0,
    level: opt.LevelOption = 0.95,
    critic: opt.CriticOption = opt.Critic.VALUES,
    format: opt.FormatOption = opt.LogFormat.AUTO,
    map: opt.MapOption = None,
    steps: opt.StepsOption = None,
    threads: opt.ThreadsOption = None,
    force: opt.ForceOption = False,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Write a page with the verdict, its checks, and an answer with a figure to every question.

    The page is one file that needs nothing else: no network, no script. It reads well in light and
    dark, on a phone and on paper.
    """
    from ..report import report

    report(
        source,
        output=output,
        by=by,
        margin=margin,
        baseline=baseline,
        gamma=gamma,
        level=level,
        critic=critic,
        format=format,
        map=map,
        steps=steps,
        threads=threads,
        force=force,
        quiet=quiet,
    )
