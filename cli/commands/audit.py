"""How `brace-diag audit` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "audit"
SHORT_HELP = "Judge whether the critic needs correction; a gate for CI."


def command(
    source: opt.Sources,
    by: opt.AuditByOption = None,
    margin: opt.MarginOption = 0.1,
    fail_on: opt.FailOnOption = None,
    baseline: opt.BaselineOption = opt.Baseline.AUTO,
    gamma: opt.GammaOption = 1.0,
    level: opt.LevelOption = 0.95,
    fresh: opt.FreshOption = None,
    critic: opt.CriticOption = opt.Critic.VALUES,
    format: opt.FormatOption = opt.LogFormat.AUTO,
    map: opt.MapOption = None,
    steps: opt.StepsOption = None,
    output_format: opt.OutputFormatOption = opt.OutputFormat.TEXT,
    json: opt.JsonOption = False,
    log_to: opt.LogToOption = None,
    threads: opt.ThreadsOption = None,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> int:
    """Judge whether a run's critic needs correction, or say which data would tell.

    The gap b = V^pi - V^mu at the first token is held against a margin, .1 of the spread s_A of
    the return within a prompt. The verdict is one of: negligible, needs_correction, needs_probe
    (fresh rollouts from pi are needed, and how many), inconclusive (more of the same would tell),
    no_staleness, invalid (the log is not what its columns say).

    The exit code is 0 whatever the verdict, unless --fail-on is given: then 1 for
    needs_correction, and with --fail-on any 3 where the log cannot be judged. 2 is wrong usage or
    a log that cannot be read.
    """
    from ..audit import audit

    return audit(
        source,
        by=by,
        margin=margin,
        fail_on=fail_on,
        baseline=baseline,
        gamma=gamma,
        level=level,
        fresh=fresh,
        critic=critic,
        format=format,
        map=map,
        steps=steps,
        output_format=opt.OutputFormat.JSON if json else output_format,
        log_to=log_to,
        threads=threads,
        quiet=quiet,
    )
