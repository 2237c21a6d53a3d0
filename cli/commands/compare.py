"""How `brace-diag compare` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "compare"
SHORT_HELP = "Compare two runs, paired by prompt where they share prompts."


def command(
    a: opt.FirstRun,
    b: opt.SecondRun,
    gamma: opt.GammaOption = 1.0,
    level: opt.LevelOption = 0.95,
    baseline: opt.BaselineOption = opt.Baseline.AUTO,
    c_bar: opt.WeightsCBarOption = 1.1,
    rho_bar: opt.WeightsRhoBarOption = 1.2,
    critic: opt.CriticOption = opt.Critic.VALUES,
    format: opt.FormatOption = opt.LogFormat.AUTO,
    map: opt.MapOption = None,
    steps: opt.StepsOption = None,
    json: opt.JsonOption = False,
    plot: opt.PlotOption = None,
    threads: opt.ThreadsOption = None,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Compare the gap, the critic and the weights of two runs: b less a.

    Where both hold the same prompts, a difference has the error of a paired comparison. p-values
    are adjusted after Holm for all figures at once, and for all positions of the gap.
    """
    from brace_diag.results_trend import FigureSettings

    from ..compare import compare

    settings = FigureSettings(
        gamma=gamma, level=level, baseline=baseline.value, c_bar=c_bar, rho_bar=rho_bar
    )
    compare(
        a,
        b,
        settings,
        critic=critic,
        format=format,
        map=map,
        steps=steps,
        json=json,
        plot=plot,
        threads=threads,
        quiet=quiet,
    )
