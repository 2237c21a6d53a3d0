"""The commands and their options, and what becomes of their errors.

Only the standard library and typer are loaded here: whatever computes is imported inside the
command that needs it, so that `--help` and shell completion answer at once.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer

from brace_diag.errors import BraceDiagError

from . import options as opt
from .terminal import say

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
# typer brings its own click, or uses the installed one: both hang this class above BadParameter.
UsageError: type[Exception] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    name="brace-diag",
    help="Measure how stale a critic is, from the log of an asynchronous RL run.",
    epilog="Start with: brace-diag demo",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from brace_diag._version import __version__

        typer.echo(f"brace-diag {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(EXIT_ERROR)


@app.command("demo", short_help="Measure the log that the package ships; needs no file.")
def _demo(
    save_log: opt.SaveLogOption = None,
    plot: opt.PlotOption = None,
    level: opt.LevelOption = 0.95,
    force: opt.ForceOption = False,
    json: opt.JsonOption = False,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Measure the gap in the log that the package ships, a small asynchronous PPO run.

    It needs no file, and shows the estimate beside the truth that was measured at the time.
    """
    from .demo import demo

    demo(save_log=save_log, plot=plot, json=json, level=level, force=force, quiet=quiet)


@app.command("inspect", short_help="Say what is in a log, and what it can answer.")
def _inspect(
    source: opt.Sources,
    format: opt.FormatOption = opt.LogFormat.AUTO,
    map: opt.MapOption = None,
    steps: opt.StepsOption = None,
    json: opt.JsonOption = False,
    quiet: opt.QuietOption = False,
    debug: opt.DebugOption = False,
) -> None:
    """Say what is in a log: columns, counts, oddities, and which questions it can answer."""
    from .inspect_log import inspect_log

    inspect_log(source, format=format, map=map, steps=steps, json=json, quiet=quiet)


@app.command("bias", short_help="Measure the value gap and the critic's bias.")
def _bias(
    source: opt.Sources,
    by: opt.ByOption = None,
    staleness: opt.StalenessOption = opt.Staleness.FIRST,
    positions: opt.PositionsOption = False,
    axis: opt.AxisOption = opt.Axis.POSITION,
    baseline: opt.BaselineOption = opt.Baseline.AUTO,
    gamma: opt.GammaOption = 1.0,
    level: opt.LevelOption = 0.95,
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
    from .bias import bias

    bias(
        source,
        by=by,
        staleness=staleness,
        positions=positions,
        axis=axis,
        baseline=baseline,
        gamma=gamma,
        level=level,
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


@app.command("beta", short_help="Measure how much of the reward reaches each value target.")
def _beta(
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
    from .beta import Request, beta

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


@app.command("targets", short_help="Write value targets and advantages beside a log's columns.")
def _targets(
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
    from .targets import Request, targets

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


@app.command("critic", short_help="Measure how well the critic fits, and its distance to targets.")
def _critic(
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
    from .critic import Request, critic

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


@app.command("weights", short_help="Measure the weights pi/mu, their products and their tails.")
def _weights(
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
    from .weights import Request, weights

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


@app.command("simulate", short_help="Write a log whose true gap is known exactly.")
def _simulate(
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
    from . import simulate

    if list_:
        simulate.list_scenarios()
        return
    request = simulate.Request(
        scenario, prompts, group_size, length, n_steps, drift, alignment, gamma, seed
    )
    simulate.simulate(request, output, force=force, json=json, quiet=quiet)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: a result was printed; 2: wrong usage or a log that cannot be read; 130: interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    for stream in (sys.stdout, sys.stderr):
        # A terminal that lacks a letter shows a question mark; it does not cost the result.
        getattr(stream, "reconfigure", lambda **_: None)(errors="replace")
    with warnings.catch_warnings():
        if not debug:
            warnings.showwarning = _show_warning
        try:
            return _run(words)
        except Exception as error:
            if debug:
                traceback.print_exc()
            else:
                say(_explain(error, words))
            return EXIT_ERROR


def _run(words: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        code = command.main(args=words, prog_name="brace-diag", standalone_mode=False)
    except (KeyboardInterrupt, typer.Abort):
        code = EXIT_INTERRUPTED
    if code == EXIT_INTERRUPTED:
        say("interrupted")
    return code if isinstance(code, int) else 0


def _explain(error: Exception, words: Sequence[str]) -> str:
    """An error as the one or two lines that its reader can act on."""
    if isinstance(error, BraceDiagError):
        return f"error: {error}"
    if isinstance(error, UsageError):
        return _explain_usage(error, words)
    if isinstance(error, MemoryError):
        return "error: not enough memory; give the program more, or read fewer steps with --steps"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"error: {where}{error.strerror}"
    kind = type(error).__name__
    return (
        f"internal error: {kind}: {' '.join(str(error).split())}\n"
        "this is a fault of brace-diag: run again with --debug and report what it prints"
    )


def _explain_usage(error: Exception, words: Sequence[str]) -> str:
    message = getattr(error, "format_message", error.__str__)().replace("Value error, ", "")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "brace-diag"
    text = " ".join(message.split()).rstrip(".")
    got = _value_given(getattr(getattr(error, "param", None), "opts", ()), words)
    if got is not None and repr(got) not in text:
        text += f"; it is {got!r}"
    return f"error: {text}\nsee: {command} --help"


def _value_given(names: Sequence[str], words: Sequence[str]) -> str | None:
    """What follows an option on the command line; the messages of typer leave it out."""
    for name in names:
        for word, following in zip(words, [*words[1:], None], strict=True):
            if word == name:
                return following
            if name.startswith("--") and word.startswith(f"{name}="):
                return word.removeprefix(f"{name}=")
    return None


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    say(f"warning: {' '.join(str(message).split())}")
