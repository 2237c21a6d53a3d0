"""How `brace-diag bias` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "bias"
SHORT_HELP = "Measure the value gap and the critic's bias."


def command(
    source: opt.Sources,
    by: opt.ByOption = None,
    staleness: opt.StalenessOption = opt.Staleness.FIRST,
    positions: opt.PositionsOption = False,
    axis: opt.AxisOption = opt.Axis.POSITION,
    baseline: opt.BaselineOption = opt.Baseline.AUTO,
    gamma: opt.GammaOption = 1.0,
    level: opt.LevelOption = 0.95,
    fresh: opt.FreshOption = None,
    critic: opt.CriticOption = opt.Critic.VALUES,
    format: opt.FormatOption = opt.LogFormat.AUTO,
    map: opt.MapOption = None,
    steps: opt.StepsOption = None,
    json: opt.JsonOption = False,
    plot: opt.PlotOption = None,
    per_rollout: opt.PerRolloutOption = None,
    force: opt.ForceOption = False,
    threads: opt.ThreadsOption = None,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Measure the value gap b(t) = V^pi - V^mu by token position, and the critic's bias.

    mu is the policy that sampled the log, pi the one being updated. b is in units of the return;
    above 0, pi earns more than mu did, and a critic fitted to the log is too low by that much.
    """
    from ..bias import bias

    bias(
        source,
        by=by,
        staleness=staleness,
        positions=positions,
        axis=axis,
        baseline=baseline,
        gamma=gamma,
        level=level,
        fresh=fresh,
        critic=critic,
        format=format,
        map=map,
        steps=steps,
        json=json,
        plot=plot,
        per_rollout=per_rollout,
        force=force,
        threads=threads,
        quiet=quiet,
    )
