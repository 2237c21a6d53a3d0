"""How `brace-diag beta` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "beta"
SHORT_HELP = "Measure how much of the reward reaches each value target."


def command(
    source: opt.Sources,
    target: opt.SlopeTargetsOption = None,
    gamma: opt.GammaOption = 1.0,
    lam: opt.LamOption = 1.0,
    k: opt.KOption = None,
    rho_bar: opt.RhoBarOption = None,
    c_bar: opt.CBarOption = None,
    by: opt.ByOption = None,
    staleness: opt.StalenessOption = opt.Staleness.FIRST,
    level: opt.LevelOption = 0.95,
    format: opt.FormatOption = opt.LogFormat.AUTO,
    map: opt.MapOption = None,
    steps: opt.StepsOption = None,
    json: opt.JsonOption = False,
    plot: opt.PlotOption = None,
    threads: opt.ThreadsOption = None,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Measure how much of the reward reaches each value target, by tokens still to go.

    beta is the slope of target - V on G - V in a cell of remaining horizon: 1 where the critic
    learns from the whole reward, 0 where from none of it. `within` compares rollouts of one prompt
    (read this one), `pooled` all of them, as the paper does. Beside it stands the weight that the
    return has in the target, which does not depend on the critic. Numbers that a target does not
    state come from --gamma, --lam, --k, --rho-bar and --c-bar.
    """
    from ..beta import Request, beta

    defaults = opt.target_defaults(gamma, lam, k, rho_bar, c_bar)
    request = Request(target or [], defaults, level, by, staleness, threads)
    beta(
        source,
        request,
        format=format,
        map=map,
        steps=steps,
        json=json,
        plot=plot,
        quiet=quiet,
    )
