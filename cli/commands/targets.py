"""How `brace-diag targets` is called."""

from __future__ import annotations

from .. import options as opt

NAME = "targets"
SHORT_HELP = "Write value targets and advantages beside a log's columns."


def command(
    source: opt.Sources,
    output: opt.OutputOption = None,
    target: opt.TargetsOption = None,
    gamma: opt.GammaOption = 1.0,
    lam: opt.LamOption = 1.0,
    k: opt.KOption = None,
    rho_bar: opt.RhoBarOption = None,
    c_bar: opt.CBarOption = None,
    device: opt.DeviceOption = opt.Device.AUTO,
    level: opt.LevelOption = 0.95,
    format: opt.FormatOption = opt.LogFormat.AUTO,
    map: opt.MapOption = None,
    steps: opt.StepsOption = None,
    force: opt.ForceOption = False,
    json: opt.JsonOption = False,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Write a log's own columns and, beside them, value targets for its critic.

    Each target adds three list columns: target_*, advantage_* (r + gamma target of the next token
    - V) and log10_kappa_* (how much of the final reward reaches the target). Numbers that a target
    does not state come from --gamma, --lam, --k, --rho-bar and --c-bar.
    """
    from ..targets import Request, targets

    defaults = opt.target_defaults(gamma, lam, k, rho_bar, c_bar)
    request = Request(target or ["brace"], defaults, device.value, level)
    targets(
        source,
        output,
        request,
        format=format,
        map=map,
        steps=steps,
        force=force,
        json=json,
        quiet=quiet,
    )
