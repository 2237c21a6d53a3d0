"""How `brace-diag critic` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "critic"
SHORT_HELP = "Measure how well the critic fits, and its distance to targets."


def command(
    source: opt.Sources,
    target: opt.CriticTargetsOption = None,
    by: opt.ByOption = None,
    staleness: opt.StalenessOption = opt.Staleness.FIRST,
    gamma: opt.GammaOption = 1.0,
    lam: opt.LamOption = 1.0,
    k: opt.KOption = None,
    rho_bar: opt.RhoBarOption = None,
    c_bar: opt.CBarOption = None,
    level: opt.LevelOption = 0.95,
    format: opt.FormatOption = opt.LogFormat.AUTO,
    map: opt.MapOption = None,
    steps: opt.StepsOption = None,
    json: opt.JsonOption = False,
    plot: opt.PlotOption = None,
    figure: opt.CriticFigureOption = None,
    threads: opt.ThreadsOption = None,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Measure how well the critic fits the returns it saw, and how far it is from its targets.

    Explained variance, calibration, values that no return can reach, and mean |target - V| by
    token position. The returns are those of mu, the policy that sampled the log, and pi_logprobs
    are not needed: whether the critic is right for pi is a question for brace-diag bias.
    """
    from ..critic import Request, critic

    defaults = opt.target_defaults(gamma, lam, k, rho_bar, c_bar)
    request = Request(target or [], defaults, level, by, staleness, threads)
    critic(
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
