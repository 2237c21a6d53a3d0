"""How `brace-diag sweep` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "sweep"
SHORT_HELP = "Find which k, rho_bar and c_bar would recover the gap."


def command(
    source: opt.Sources,
    k: opt.SweepKOption = None,
    rho_bar: opt.SweepRhoBarOption = None,
    c_bar: opt.SweepCBarOption = None,
    gamma: opt.GammaOption = 1.0,
    lam: opt.LamOption = 1.0,
    level: opt.LevelOption = 0.95,
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
    """Try a grid of settings of the brace target on a log, in one pass, and recommend one.

    Every setting tells the share of the gap b that a critic fitted on it to the end recovers, and
    its price: the variance of its target and how little of the realised return is left in it. The
    paper's k = 100, rho_bar = 1.2, c_bar = 1.1 is always among them.
    """
    from ..sweep import settings_of, sweep

    sweep(
        source,
        settings_of(k, rho_bar, c_bar, gamma, lam, level),
        critic=critic,
        format=format,
        map=map,
        steps=steps,
        json=json,
        plot=plot,
        threads=threads,
        quiet=quiet,
    )
