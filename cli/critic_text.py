"""A `CriticFit` for people: what it says in a sentence, its figures, its curves, its caveats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brace_diag.number_words import interval, number, share

from .gap_text import bullets, quality_text
from .tables import Column, on_the_point, table
from .terminal import Terminal

if TYPE_CHECKING:
    from brace_diag.results import Cell, Estimate
    from brace_diag.results_critic import CriticFit, FitFigures, KeyedFit, TargetFit

FIGURES = (
    ("explained_variance", "EV", "explained variance: 1 perfect, 0 no better than the mean"),
    ("slope", "slope", "of the return on V: 1 for a calibrated critic"),
    ("intercept", "intercept", "of the same line: 0 for a calibrated critic"),
    ("mean_error", "V - G", "mean error: above 0 the critic is too high for mu"),
    ("share_outside", "outside", "share of values that no return of the log reaches"),
)
SIGNED = ("intercept", "mean_error")


def critic_text(fit: CriticFit, terminal: Terminal, remarks: Sequence[str] = ()) -> str:
    """The whole answer as text, with a newline at its end.

    Args:
        remarks: sentences about the log's columns.
    """
    blocks = [
        headline(fit, terminal),
        _figures(fit, terminal),
        _targets(fit, terminal),
        _calibration(fit, terminal),
        _positions(fit, terminal),
        *_keyed(fit, terminal),
        bullets("Notes", fit.notes, terminal),
        quality_text(fit.quality, terminal, fit.source, remarks),
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks if block)


def headline(fit: CriticFit, terminal: Terminal) -> list[str]:
    """What the log says of its critic, in a sentence or two."""
    if fit.invalid is not None:
        head = terminal.paragraph("This critic cannot be judged:")
        return [
            *(terminal.paint(line, "bold") for line in head),
            *terminal.paragraph(fit.invalid, "  ", "  "),
        ]
    ev = fit.fit.explained_variance
    if ev.value is None:
        return terminal.paragraph(f"No explained variance: {ev.reason}.")
    percent = f"{100 * ev.level:g}% interval"
    ends = f"no interval: {ev.reason}"
    if ev.ci_low is not None:
        ends = f"{percent} {interval(ev.ci_low, ev.ci_high, ev.se)}"
    told = f"The critic's explained variance of mu's returns is {number(ev.value, ev.se)} ({ends})."
    lines = terminal.paragraph(f"{told} {_slope_words(fit.fit)}".rstrip())
    return [terminal.paint(line, "bold") for line in lines]


def _slope_words(fit: FitFigures) -> str:
    slope = fit.slope
    if slope.value is None or slope.ci_low is None or slope.ci_high is None:
        return ""
    ends = f"{number(slope.value, slope.se)}, {interval(slope.ci_low, slope.ci_high, slope.se)}"
    if slope.ci_high < 1.0:
        return f"Its values differ more than the returns that follow them (slope {ends}, below 1)."
    if slope.ci_low > 1.0:
        return f"Its values differ less than the returns that follow them (slope {ends}, above 1)."
    return f"No miscalibration of its slope can be told (slope {ends}, 1 if calibrated)."


def _figures(fit: CriticFit, terminal: Terminal) -> list[str]:
    rows = [(getattr(fit.fit, name), name in SIGNED) for name, _, _ in FIGURES]
    columns = [
        Column("over all tokens", [symbol for _, symbol, _ in FIGURES], left=True),
        *_estimates(rows, fit, "value"),
        Column("", [_meaning(m, e) for (_, _, m), (e, _) in zip(FIGURES, rows, strict=True)],
               left=True),
    ]  # fmt: skip
    return table(columns, terminal)


def _meaning(meaning: str, estimate: Estimate) -> str:
    if estimate.reliable:
        return meaning
    if estimate.value is None:
        return f"{meaning.partition(':')[0]}; {estimate.reason}"
    return f"{meaning} (unreliable)"


def _estimates(rows: Sequence[tuple[Estimate, bool]], fit: CriticFit, title: str) -> list[Column]:
    values = [number(e.value, e.se, sign=signed) for e, signed in rows]
    ends = [interval(e.ci_low, e.ci_high, e.se, sign=signed) for e, signed in rows]
    head = f"{100 * fit.settings.level:g}% interval"
    return [Column(title, on_the_point(values)), Column(head, on_the_point(ends))]


def _targets(fit: CriticFit, terminal: Terminal) -> list[str]:
    """Mean |target - V| and target - V of each target."""
    found = list(fit.targets.values())
    differences = [t.difference for t in found]
    columns = [
        Column("target", list(fit.targets), left=True),
        *_estimates([(t.distance, False) for t in found], fit, "|target - V|"),
        Column(
            "target - V",
            on_the_point([number(e.value, e.se, sign=True) for e in differences]),
        ),
        Column("rollouts", [f"{t.distance.n_rollouts:,}" for t in found], rank=1),
    ]
    head = "Distance of the critic from its targets, mean over tokens, in units of the return"
    return [terminal.paint(head, "bold"), *table(columns, terminal)]


def _calibration(fit: CriticFit, terminal: Terminal) -> list[str]:
    cells = fit.calibration.cells
    if not cells:
        return []
    estimates = [(cell.estimate, False) for cell in cells]
    critic = [_companion(cell, "mean_critic") for cell in cells]
    columns = [
        Column("values from .. to", on_the_point([_bounds(cell) for cell in cells])),
        Column("mean V", on_the_point([number(v, 0.001) for v in critic])),
        *_estimates(estimates, fit, "mean return"),
        Column("tokens", [share(_companion(cell, "share")) for cell in cells], rank=1),
        Column("rollouts", [f"{cell.estimate.n_rollouts:,}" for cell in cells], rank=1),
    ]
    head = "Mean return by the critic's value: equal where it is calibrated"
    return [terminal.paint(head, "bold"), *table(columns, terminal)]


def _bounds(cell: Cell) -> str:
    return f"{number(cell.low, 0.01)} .. {number(cell.high, 0.01)}"


def _companion(cell: Cell, name: str) -> float | None:
    value = cell.companions.get(name)
    return value if isinstance(value, float) else None


def _positions(fit: CriticFit, terminal: Terminal) -> list[str]:
    """EV and the distance to each target by position; targets stand in the order asked for."""
    cells = fit.explained_variance.cells
    if not cells:
        return []
    ev = [cell.estimate for cell in cells]
    columns = [
        Column("position", [_range(cell) for cell in cells]),
        Column("rollouts", [f"{e.n_rollouts:,}" for e in ev], rank=3),
        Column("EV", on_the_point([number(e.value, e.se) for e in ev])),
        Column("se", on_the_point([_error(e) for e in ev]), rank=2),
    ]
    for label, target in fit.targets.items():
        curve = target.by_position
        assert curve is not None
        own = [cell.estimate for cell in curve.cells]
        values = on_the_point([number(e.value, e.se) for e in own])
        columns.append(Column(f"|{_name(label, fit)} - V|", values))
        columns.append(Column("se", on_the_point([_error(e) for e in own]), rank=2))
    head = "By token position: explained variance, and mean |target - V|"
    return [terminal.paint(head, "bold"), *table(columns, terminal)]


def _name(label: str, fit: CriticFit) -> str:
    """A target's short name, where it tells it from the others."""
    name = label.partition(":")[0]
    alone = sum(spec.name == name for spec in fit.settings.targets) == 1
    return name if alone else label


def _range(cell: Cell) -> str:
    low, high = int(cell.low), int(cell.high)
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"


def _error(estimate: Estimate) -> str:
    return f"+- {number(estimate.se, estimate.se)}" if estimate.se is not None else ""


def _keyed(fit: CriticFit, terminal: Terminal) -> list[list[str]]:
    key = fit.settings.by
    if key is None:
        return []
    if not fit.by:
        return [[f"By {key}: the log tells no {key} for any rollout"]]
    return [[terminal.paint(f"By {key}, over all tokens", "bold"), *_key_table(fit, terminal)]]


def _key_table(fit: CriticFit, terminal: Terminal) -> list[str]:
    entries = fit.by
    columns = [
        Column(str(fit.settings.by), [str(entry.key) for entry in entries]),
        Column("rollouts", [f"{e.fit.mean_error.n_rollouts:,}" for e in entries], rank=3),
        *_estimates([(entry.fit.explained_variance, False) for entry in entries], fit, "EV"),
        Column("slope", _figure(entries, "slope"), rank=1),
        Column("V - G", _figure(entries, "mean_error"), rank=1),
        Column("outside", [share(e.fit.share_outside.value) for e in entries], rank=2),
    ]
    for label in fit.targets:
        own: list[TargetFit] = [entry.targets[label] for entry in entries]
        values = on_the_point([number(t.distance.value, t.distance.se) for t in own])
        columns.append(Column(f"|{_name(label, fit)} - V|", values))
        columns.append(Column("se", on_the_point([_error(t.distance) for t in own]), rank=2))
    return table(columns, terminal)


def _figure(entries: Sequence[KeyedFit], name: str) -> list[str]:
    figures: list[Estimate] = [getattr(entry.fit, name) for entry in entries]
    return on_the_point([number(e.value, e.se, sign=name in SIGNED) for e in figures])
