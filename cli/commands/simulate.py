"""How `brace-diag simulate` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "simulate"
SHORT_HELP = "Write a log whose true gap is known exactly."


def command(
    output: opt.OutputOption = None,
    scenario: opt.ScenarioOption = "drift",
    list_: opt.ListOption = False,
    prompts: opt.PromptsOption = None,
    group_size: opt.GroupSizeOption = None,
    length: opt.LengthOption = None,
    n_steps: opt.NStepsOption = None,
    drift: opt.DriftOption = None,
    alignment: opt.AlignmentOption = None,
    gamma: opt.GammaOption = 1.0,
    seed: opt.SeedOption = 0,
    force: opt.ForceOption = False,
    json: opt.JsonOption = False,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Write a log whose true gap is known exactly, and the truth beside it (OUT.truth.json).

    Every number that is not given is the scenario's own. The log is of a token-level decision
    process that is solved exactly; the same seed gives the same log.
    """
    from .. import simulate

    if list_:
        simulate.list_scenarios()
        return
    request = simulate.Request(
        scenario, prompts, group_size, length, n_steps, drift, alignment, gamma, seed
    )
    simulate.simulate(request, output, force=force, json=json, quiet=quiet)
