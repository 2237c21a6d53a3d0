"""Options that several commands share, and the parsers of their little languages."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from brace_diag.errors import InputError

PLOT_SUFFIXES = (".png", ".svg", ".pdf")
SLOPE_TARGETS = ("gae", "vtrace", "brace")


class LogFormat(StrEnum):
    """Formats that a reader can be told to expect."""

    AUTO = "auto"
    PARQUET = "parquet"
    JSONL = "jsonl"


class By(StrEnum):
    """Keys of the keyed estimates."""

    STEP = "step"
    STALENESS = "staleness"


class Staleness(StrEnum):
    """Which policy token's version makes a rollout's staleness."""

    FIRST = "first"
    LAST = "last"


class CriticFigure(StrEnum):
    """Figures of the critic's fit."""

    CALIBRATION = "calibration"
    TARGET = "target"


class Baseline(StrEnum):
    """What returns are centred by."""

    AUTO = "auto"
    CRITIC = "critic"
    GROUP = "group"


class Device(StrEnum):
    """Where targets are computed."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class Axis(StrEnum):
    """What the gap is drawn along."""

    POSITION = "position"
    HORIZON = "horizon"
    RELATIVE = "relative"


class Critic(StrEnum):
    """What is taken for the critic."""

    VALUES = "values"
    GROUP_MEAN = "group-mean"


class AuditBy(StrEnum):
    """What is judged besides the whole log."""

    STEP = "step"


class FailOn(StrEnum):
    """Which verdicts make an audit's exit code other than 0."""

    CORRECTION = "correction"
    ANY = "any"


class OutputFormat(StrEnum):
    """How an audit is written."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    MARKDOWN = "markdown"


class WeightsFigure(StrEnum):
    """Figures of the importance products."""

    PRODUCTS = "products"
    TAILS = "tails"
    POSITIONS = "positions"


Sources = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="A log: a file, a folder (with all below it), a glob, a URL, or several of these.",
        show_default=False,
    ),
]
FirstRun = Annotated[
    str, typer.Argument(metavar="A", help="A log: a file, a folder, a glob or a URL.")
]
SecondRun = Annotated[str, typer.Argument(metavar="B", help="The log to hold against it.")]
FormatOption = Annotated[
    LogFormat, typer.Option("--format", help="Format of the log; auto goes by the file names.")
]
MapOption = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="CANONICAL=THEIRS",
        help="Read a column under another name, e.g. mu_logprobs=rollout_log_probs. Repeatable.",
        show_default=False,
    ),
]
StepsOption = Annotated[
    str | None,
    typer.Option(
        "--steps",
        metavar="A:B:C",
        help="Only these trainer steps, as in Python: from A, below B, every C-th. Or one step.",
        show_default=False,
    ),
]
GammaOption = Annotated[
    float, typer.Option("--gamma", metavar="NUMBER", help="Discount per policy token, in (0, 1].")
]
LamOption = Annotated[
    float, typer.Option("--lam", metavar="NUMBER", help="Trace decay lambda, in [0, 1].")
]
KOption = Annotated[
    float | None,
    typer.Option(
        "--k",
        metavar="N",
        help="Corrected steps of brace and capped, or inf. [default: 100]",
        show_default=False,
    ),
]
RhoBarOption = Annotated[
    float | None,
    typer.Option(
        "--rho-bar",
        metavar="NUMBER",
        help="Cap of the residual's weight, or inf. [default: 1.2; vtrace 1]",
        show_default=False,
    ),
]
CBarOption = Annotated[
    float | None,
    typer.Option(
        "--c-bar",
        metavar="NUMBER",
        help="Cap of the trace, or inf. [default: 1.1; vtrace 1]",
        show_default=False,
    ),
]
SweepKOption = Annotated[
    list[float] | None,
    typer.Option(
        "--k",
        metavar="N",
        help="A window in tokens, or inf. Repeatable. [default: 16, 64, 100, 256, inf]",
        show_default=False,
    ),
]
SweepRhoBarOption = Annotated[
    list[float] | None,
    typer.Option(
        "--rho-bar",
        metavar="NUMBER",
        help="A cap of the residual's weight. Repeatable. [default: 1, 1.2, 2]",
        show_default=False,
    ),
]
SweepCBarOption = Annotated[
    list[float] | None,
    typer.Option(
        "--c-bar",
        metavar="NUMBER",
        help="A cap of the trace, used with every rho_bar that is not smaller. Repeatable. "
        "[default: 1, 1.1, 1.2, 2]",
        show_default=False,
    ),
]
TargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAME[:KEY=NUMBER,...]",
        help="A value target: mc, gae, vtrace, capped or brace, with its parameters, e.g. "
        "brace:k=20,c_bar=1. Repeatable. [default: brace]",
        show_default=False,
    ),
]
SlopeTargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAME[:KEY=NUMBER,...]",
        help="A value target: mc, gae, vtrace, capped or brace, with its parameters, e.g. "
        "vtrace:n=64,c_bar=1. Repeatable. [default: gae, vtrace and brace]",
        show_default=False,
    ),
]
DeviceOption = Annotated[
    Device,
    typer.Option(
        "--device", help="Where targets are computed; auto: cuda where torch has a device."
    ),
]
LevelOption = Annotated[
    float, typer.Option("--level", metavar="NUMBER", help="Level of the intervals, in (0, 1).")
]
ByOption = Annotated[
    By | None,
    typer.Option("--by", help="Also one estimate per step or per staleness.", show_default=False),
]
StalenessOption = Annotated[
    Staleness,
    typer.Option(
        "--staleness",
        help="With --by staleness: that of the response's first policy token, or of its last one, "
        "where the log has versions per token.",
    ),
]
PositionsOption = Annotated[
    bool, typer.Option("--positions", help="With --by: the gap by position for every key.")
]
CriticTargetsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--target",
        metavar="NAME[:KEY=NUMBER,...]",
        help="A value target: mc, gae, vtrace, capped or brace, with its parameters, e.g. "
        "brace:k=20,c_bar=1. Repeatable. [default: mc, and brace where the log has pi_logprobs]",
        show_default=False,
    ),
]
CriticFigureOption = Annotated[
    CriticFigure | None,
    typer.Option(
        "--figure",
        help="What --plot draws: mean return by the critic's value, or target against critic "
        "(by staleness with --by staleness). [default: calibration]",
        show_default=False,
    ),
]
BaselineOption = Annotated[
    Baseline,
    typer.Option(
        "--baseline",
        help="What returns are centred by: the critic, also the prompt's other rollouts (group), "
        "or whichever gives the smaller standard error (auto).",
    ),
]
CriticOption = Annotated[
    Critic,
    typer.Option(
        "--critic",
        help="What V is: the log's values, or the mean return of the prompt's other rollouts, the "
        "baseline of group methods, for logs without a critic.",
    ),
]
FreshOption = Annotated[
    str | None,
    typer.Option(
        "--fresh",
        metavar="FILE",
        help="Rollouts of the same prompts drawn by pi: the gap from returns alone, beside the one "
        "from weights. Read with the same --format and --map.",
        show_default=False,
    ),
]
AxisOption = Annotated[
    Axis,
    typer.Option(
        "--axis", help="What the gap runs along. Only position is unbiased where lengths vary."
    ),
]
WeightsCBarOption = Annotated[
    float, typer.Option("--c-bar", metavar="NUMBER", help="Cap of the trace, or inf.")
]
WeightsRhoBarOption = Annotated[
    float, typer.Option("--rho-bar", metavar="NUMBER", help="Cap of the residual's weight, or inf.")
]
WeightsFigureOption = Annotated[
    WeightsFigure | None,
    typer.Option(
        "--figure",
        help="What --plot draws: log-products by length, both tails of log w, or |log w| by "
        "position. [default: products]",
        show_default=False,
    ),
]
TrendByOption = Annotated[By, typer.Option("--by", help="What the figures run along.")]
AuditByOption = Annotated[
    AuditBy | None,
    typer.Option("--by", help="Also one verdict per trainer step.", show_default=False),
]
MarginOption = Annotated[
    float,
    typer.Option(
        "--margin", metavar="NUMBER", help="The gap that does no harm, in units of s_A, above 0."
    ),
]
FailOnOption = Annotated[
    FailOn | None,
    typer.Option(
        "--fail-on",
        help="Let the exit code tell the verdict. correction: 1 for needs_correction, else 0. "
        "any: also 3 where the log cannot be judged.",
        show_default=False,
    ),
]
OutputFormatOption = Annotated[
    OutputFormat,
    typer.Option(
        "--output-format",
        help="text; json; github: annotations of a GitHub workflow; markdown: a comment.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print strict JSON instead of tables.")]
PlotOption = Annotated[
    Path | None,
    typer.Option(
        "--plot",
        metavar="FILE",
        help="Also draw the result; the name ends in .png, .svg or .pdf.",
        show_default=False,
    ),
]
PerRolloutOption = Annotated[
    Path | None,
    typer.Option(
        "--per-rollout",
        metavar="OUT.parquet",
        help="Also write one row per rollout: return, V_0, sum of log w, its part of the gap, ...",
        show_default=False,
    ),
]
ThreadsOption = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        help="Threads to use; all cores if not given. The result does not depend on it.",
        show_default=False,
    ),
]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress and no messages on stderr but errors.")
]
DebugOption = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite files that exist.")]
SaveLogOption = Annotated[
    Path | None,
    typer.Option(
        "--save-log", metavar="FILE", help="Also copy the log to this file.", show_default=False
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="OUT.parquet", help="The log to write.", show_default=False
    ),
]
ReportOption = Annotated[
    Path, typer.Option("--output", "-o", metavar="OUT.html", help="The page to write.")
]
DemoReportOption = Annotated[
    Path | None,
    typer.Option("--report", metavar="OUT.html", help="Also write its report.", show_default=False),
]
LogToOption = Annotated[
    str | None,
    typer.Option(
        "--log-to",
        metavar="TRACKER[:WHERE]",
        help="Also log every step to wandb[:PROJECT], tensorboard[:FOLDER] or mlflow[:EXPERIMENT].",
        show_default=False,
    ),
]
ScenarioOption = Annotated[
    str, typer.Option("--scenario", metavar="NAME", help="What to simulate; see --list.")
]
ListOption = Annotated[bool, typer.Option("--list", help="List the scenarios and exit.")]
PromptsOption = Annotated[
    int | None,
    typer.Option("--prompts", metavar="N", min=1, help="Prompts of a step.", show_default=False),
]
GroupSizeOption = Annotated[
    int | None,
    typer.Option(
        "--group-size", metavar="N", min=1, help="Rollouts of each prompt.", show_default=False
    ),
]
LengthOption = Annotated[
    int | None,
    typer.Option(
        "--length",
        metavar="N",
        min=1,
        help="Tokens of a response, or the most.",
        show_default=False,
    ),
]
NStepsOption = Annotated[
    int | None,
    typer.Option(
        "--n-steps",
        metavar="N",
        min=1,
        help="Trainer steps; pi moves on from each to the next.",
        show_default=False,
    ),
]
DriftOption = Annotated[
    float | None,
    typer.Option(
        "--drift",
        metavar="NUMBER",
        min=0.0,
        help="Mean |log pi/mu| per token, at the last step.",
        show_default=False,
    ),
]
AlignmentOption = Annotated[
    float | None,
    typer.Option(
        "--alignment",
        metavar="NUMBER",
        min=0.0,
        max=1.0,
        help="How far the drift points where the value is.",
        show_default=False,
    ),
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", min=0, help="Seed of every random draw.")
]


def target_defaults(
    gamma: float, lam: float, k: float | None, rho_bar: float | None, c_bar: float | None
) -> dict[str, float]:
    """What targets take for parameters that they do not state; what is None stays their own."""
    given = {"gamma": gamma, "lam": lam, "k": k, "rho_bar": rho_bar, "c_bar": c_bar}
    return {name: value for name, value in given.items() if value is not None}


def parse_map(pairs: list[str] | None) -> dict[str, str] | None:
    """`canonical=theirs` pairs as a dictionary."""
    renamed: dict[str, str] = {}
    for pair in pairs or ():
        canonical, equals, theirs = (part.strip() for part in pair.partition("="))
        if not (canonical and equals and theirs):
            raise InputError(
                f"--map {pair!r} is not CANONICAL=THEIRS; "
                "write for example --map mu_logprobs=rollout_log_probs"
            )
        if renamed.get(canonical, theirs) != theirs:
            raise InputError(
                f"--map gives {canonical} twice: {renamed[canonical]!r} and {theirs!r}; keep one"
            )
        renamed[canonical] = theirs
    return renamed or None


def check_staleness(by: By | None, staleness: Staleness) -> None:
    """Refuse a kind of staleness where it is not the key."""
    if staleness is not Staleness.FIRST and by is not By.STALENESS:
        raise InputError(f"--staleness {staleness} belongs to --by staleness; add it")


def check_plot(path: Path | None) -> None:
    """Refuse a figure's name before anything is computed for it."""
    if path is None:
        return
    if path.suffix.lower() not in PLOT_SUFFIXES:
        raise InputError(
            f"--plot {path}: the ending {path.suffix or '(none)'} is not one of "
            f"{', '.join(PLOT_SUFFIXES)}; the ending chooses the format"
        )
    check_folder(path, "--plot")


def check_folder(path: Path, option: str) -> None:
    """Refuse a file's name whose folder is not there, or which is itself a folder."""
    if path.is_dir():
        raise InputError(f"{option} {path} is a folder; give the name of a file")
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"{option} {path}: there is no folder {folder}; make it first")
