"""How `brace-diag weights` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "weights"
SHORT_HELP = "Measure the weights pi/mu, their products and their tails."


def command(
    source: opt.Sources,
    c_bar: opt.WeightsCBarOption = 1.1,
    rho_bar: opt.WeightsRhoBarOption = 1.2,
    gamma: opt.GammaOption = 1.0,
    lam: opt.LamOption = 1.0,
    by: opt.ByOption = None,
    staleness: opt.StalenessOption = opt.Staleness.FIRST,
    level: opt.LevelOption = 0.95,
    format: opt.FormatOption = opt.LogFormat.AUTO,
    map: opt.MapOption = None,
    steps: opt.StepsOption = None,
    json: opt.JsonOption = False,
    plot: opt.PlotOption = None,
    figure: opt.WeightsFigureOption = None,
    threads: opt.ThreadsOption = None,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Measure how fast products of w = pi/mu fall along a response, and what the weights are like.

    m is the mean log-weight of a token, capped at c_bar: it says how far back a reward can reach
    through a corrected target. Also whether w is an importance ratio at all, what the caps clip,
    KL, effective sample sizes, and which tokens and positions carry extreme ratios.
    """
    from ..weights import Request, weights

    request = Request(c_bar, rho_bar, gamma, lam, level, by, staleness, threads)
    weights(
        source,
        request,
        format=format,
        map=map,
        steps=steps,
        json=json,
        plot=plot,
        figure=figure,
        quiet=quiet,
    )
