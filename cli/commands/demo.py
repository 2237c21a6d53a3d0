"""How `brace-diag demo` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "demo"
SHORT_HELP = "Audit the log that the package ships; needs no file."


def command(
    save_log: opt.SaveLogOption = None,
    plot: opt.PlotOption = None,
    report: opt.DemoReportOption = None,
    level: opt.LevelOption = 0.95,
    force: opt.ForceOption = False,
    json: opt.JsonOption = False,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Audit the log that the package ships, a small asynchronous PPO run; it needs no file.

    Shows the verdict, and the gap beside the truth that was measured at the time.
    """
    from ..demo import demo

    demo(
        save_log=save_log,
        plot=plot,
        report=report,
        json=json,
        level=level,
        force=force,
        quiet=quiet,
    )
