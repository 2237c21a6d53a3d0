"""How `brace-diag trend` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "trend"
SHORT_HELP = "Follow gap, critic and weights over steps or staleness."


def command(
    source: opt.Sources,
    by: opt.TrendByOption = opt.By.STEP,
    staleness: opt.StalenessOption = opt.Staleness.FIRST,
    margin: opt.MarginOption = 0.1,
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
    log_to: opt.LogToOption = None,
    threads: opt.ThreadsOption = None,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Follow the gap, the critic and the weights over trainer steps, or over staleness.

    Tells the first step at which the gap lies beyond the margin, and tests every figure for a
    trend with a standard error that allows for autocorrelation.
    """
    from brace_diag.results_trend import TrendSettings

    from ..trend import trend

    opt.check_staleness(by, staleness)
    settings = TrendSettings(
        by=by.value,
        staleness=staleness.value,
        gamma=gamma,
        level=level,
        baseline=baseline.value,
        margin=margin,
        c_bar=c_bar,
        rho_bar=rho_bar,
    )
    trend(
        source,
        settings,
        critic=critic,
        format=format,
        map=map,
        steps=steps,
        json=json,
        plot=plot,
        log_to=log_to,
        threads=threads,
        quiet=quiet,
    )
