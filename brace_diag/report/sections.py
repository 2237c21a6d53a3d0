"""The sections of a report: a question, its answer in a sentence, pictures, a few numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brace_diag.number_words import interval, number, short
from brace_diag.report import words
from brace_diag.results import Estimate
from brace_diag.results_report import Findings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Draw = Callable[[tuple[float, float]], "Figure"]
WIDE, NARROW = (7.0, 5.0), (3.5, 4.6)
TALL, NARROW_TALL = (7.0, 7.0), (3.5, 7.2)


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure to draw at two widths.

    Attributes:
        draw: makes it at a size in inches.
        reading: how to read it, in a sentence or two.
        wide, narrow: sizes for a page and for a phone.
    """

    draw: Draw
    reading: str
    wide: tuple[float, float] = WIDE
    narrow: tuple[float, float] = NARROW


@dataclass(frozen=True, slots=True)
class Row:
    """A number with its interval and what it is."""

    name: str
    value: str
    ends: str
    meaning: str
    doubt: str | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """One question of a report.

    Attributes:
        id, title, question: anchor, name in the table of contents, what is asked.
        command: what prints the same on a shell.
        answer: a sentence; `missing` instead where the log cannot answer.
        pictures, rows, notes: what stands below it.
    """

    id: str
    title: str
    question: str
    command: str
    answer: str = ""
    missing: str | None = None
    pictures: Sequence[Picture] = ()
    rows: Sequence[Row] = ()
    notes: Sequence[str] = ()


def sections(found: Findings) -> list[Section]:
    """Every section, those that the log cannot answer too."""
    makers: Iterable[Callable[[Findings], Section]] = (
        _gap,
        _trend,
        _staleness,
        _slope,
        _weights,
        _critic,
        _sweep,
    )
    return [make(found) for make in makers]


def _row(name: str, own: Estimate, meaning: str, *, sign: bool = False) -> Row:
    return Row(
        name,
        number(own.value, own.se, sign=sign),
        interval(own.ci_low, own.ci_high, own.se, sign=sign).replace("..", "to"),
        meaning,
        own.reason,
    )


def _gap(found: Findings) -> Section:
    head = Section(
        "gap", "The gap", "Where in a response does the current policy earn more or less?", "bias"
    )
    own = found.gap
    if own is None:
        return _without(head, found, "gap")
    from brace_diag.plots import gap_figure

    batch = own.batch
    rows = [
        _row("b", batch.b_hat, "gap V^π − V^μ at the first token", sign=True),
        _row("E_μ[R]", batch.reward_mu, "mean return in the log"),
        _row("E_π[R]", batch.reward_pi, "mean return of the current policy, E_μ[R] + b"),
    ]
    if batch.critic_mean.value is not None:
        rows += [
            _row("V", batch.critic_mean, "mean critic at the first token"),
            _row("V − E_π[R]", batch.g_pi_signed, "critic against π; above 0: too high", sign=True),
            _row("V − E_μ[R]", batch.g_mu_signed, "critic against μ; above 0: too high", sign=True),
        ]
    rows += [
        _row("s_A", batch.return_sd, "spread of the return within a prompt"),
        Row("v", short(_v(own.gap.cells)), "", "within-prompt variance of the log product"),
    ]
    picture = Picture(
        lambda size: gap_figure(own, size=size),
        "Above zero, π earns more than μ from that position on, and a critic fitted to this log is "
        "too low there; below zero, too high. The band is the interval; the mark of each position "
        "says how far the log can be believed there. The strip counts the responses that are still "
        "running.",
    )
    return _with(head, words.gap_sentence(own), [picture], rows, own.notes)


def _v(cells: Sequence[object]) -> float | None:
    for cell in cells:
        value = getattr(cell, "companions", {}).get("within_var_log_product")
        return value if isinstance(value, float) else None
    return None


def _trend(found: Findings) -> Section:
    head = Section("trend", "Over the run", "Since when, and does it grow?", "trend")
    own = found.trend
    if own is None:
        return _without(head, found, "trend")
    from brace_diag.plots import trend_figure

    picture = Picture(
        lambda size: trend_figure(own, size=size),
        "Top: the gap at the first token at every step, the margin in grey, steps beyond it "
        "ringed. Below: both policies' returns and the critic, which should follow E_π[R]; how "
        "much of the returns the critic explains; how much of the sample is left after "
        "reweighting.",
        TALL,
        NARROW_TALL,
    )
    return _with(head, words.trend_sentence(own), [picture], (), own.notes)


def _staleness(found: Findings) -> Section:
    head = Section(
        "staleness",
        "By staleness",
        "Do rollouts from older policies show a larger gap?",
        "trend --by staleness",
    )
    own = found.by_staleness
    if own is None:
        return _without(head, found, "by_staleness")
    from brace_diag.plots import trend_figure

    picture = Picture(
        lambda size: trend_figure(own, size=size),
        "The same figures for rollouts of each staleness: how many versions the trainer had moved "
        "on when it used them.",
        TALL,
        NARROW_TALL,
    )
    return _with(head, words.trend_sentence(own), [picture], (), own.notes)


def _slope(found: Findings) -> Section:
    head = Section(
        "slope", "Reward reach", "Does the realised return reach the value targets?", "beta"
    )
    own = found.slope
    if own is None:
        return _without(head, found, "slope")
    from brace_diag.plots import slope_figure

    rows = [
        _row(label, one.overall.within, "slope of target − V on return − V, within prompts")
        for label, one in own.slopes.items()
    ]
    picture = Picture(
        lambda size: slope_figure(own, size=size),
        "By tokens to go. At 1 the whole return arrives in the target; where a line falls to 0, "
        "tokens that far from the end learn from the critic alone. Where the two panels disagree, "
        "the weight below is exact.",
    )
    return _with(head, words.slope_sentence(own), [picture], rows, own.notes)


def _weights(found: Findings) -> Section:
    head = Section(
        "weights", "Importance weights", "Are the products of π/μ under control?", "weights"
    )
    own = found.weights
    if own is None:
        return _without(head, found, "weights")
    from brace_diag.plots import products_figure, tails_figure

    figures = own.figures
    rows = [
        _row("m", figures.m, "mean capped log-weight of a token", sign=True),
        _row("σ", figures.sigma, "its standard deviation"),
        _row("mean π/μ", figures.mean_weight, "1 for an importance ratio"),
        _row("ESS", figures.ess_rollout, "effective share of the rollouts under π"),
        _row("w > c̄", figures.clip_c_bar, "share of tokens that the trace's cap clips"),
        _row("w > ρ̄", figures.clip_rho_bar, "share of tokens that the residual's cap clips"),
    ]
    pictures = [
        Picture(
            lambda size: products_figure(own, size=size),
            "The log of a product of n capped ratios: the points are what the log holds, the bands "
            "three forecasts. Far below zero, a corrected target has forgotten the return.",
        ),
        Picture(
            lambda size: tails_figure(own, size=size),
            "How often log π/μ is beyond a size, on either side. Heavy tails are a few tokens on "
            "which the two policies, or the two engines, disagree.",
        ),
    ]
    return _with(head, words.weights_sentence(own), pictures, rows, own.notes)


def _critic(found: Findings) -> Section:
    head = Section("critic", "The critic's fit", "Does the critic predict the log?", "critic")
    own = found.critic
    if own is None:
        return _without(head, found, "critic")
    from brace_diag.plots import calibration_figure, target_figure

    rows = [
        _row("EV", own.fit.explained_variance, "explained variance of the returns"),
        _row("slope", own.fit.slope, "of the return on V; 1 is calibrated"),
        *(
            _row(f"|{label} − V|", one.distance, "mean distance of the target from the critic")
            for label, one in own.targets.items()
        ),
    ]
    pictures = [
        Picture(
            lambda size: calibration_figure(own, size=size),
            "The mean return after tokens of each critic value. On the diagonal the critic is "
            "calibrated for the policy that wrote the log, which says nothing of the current one.",
        ),
        Picture(
            lambda size: target_figure(own, size=size),
            "Where each value target stands against the critic. Off the diagonal is what a fit "
            "would change.",
        ),
    ]
    return _with(head, words.critic_sentence(own), pictures, rows, own.notes)


def _sweep(found: Findings) -> Section:
    head = Section("sweep", "Target settings", "Which k, ρ̄ and c̄ would recover the gap?", "sweep")
    own = found.sweep
    if own is None:
        return _without(head, found, "sweep")
    from brace_diag.plots import sweep_figure

    picture = Picture(
        lambda size: sweep_figure(own, size=size),
        "Above: how much of the gap a critic fitted to the end on such targets would recover, by "
        "window. Below: what that costs in variance, against the plain return at 1.",
    )
    rows = []
    if own.recommendation is not None:
        for name, one in (
            ("recommended", own.recommendation.chosen),
            ("paper's default", own.recommendation.paper_default),
        ):
            rows.append(_row(f"{name}: share", one.share, one.label))
            rows.append(_row(f"{name}: variance", one.variance_ratio, "against the return's"))
    return _with(head, words.sweep_sentence(own), [picture], rows, own.notes)


def _with(
    head: Section,
    answer: str,
    pictures: Sequence[Picture],
    rows: Sequence[Row],
    notes: Sequence[str],
) -> Section:
    return replace(head, answer=answer, pictures=pictures, rows=rows, notes=notes)


def _without(head: Section, found: Findings, name: str) -> Section:
    why = found.missing.get(name, "not asked").removeprefix(f"{found.audit.source}: ")
    return replace(head, missing=why)
