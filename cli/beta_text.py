"""A `RewardSlope` for people: what reaches each target, its figures, its curves, its caveats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brace_diag.number_words import interval, number, share, short

from .gap_text import bullets, quality_text
from .tables import Column, on_the_point, table
from .terminal import Terminal

if TYPE_CHECKING:
    from brace_diag.results import Cell, Companion, Curve, Estimate
    from brace_diag.results_slope import OverallSlope, RewardSlope, TargetSlopes, Trend

HALF = 0.5
MISFIT = 0.01
"""Below this p-value the slopes do not lie on a line, and the table says so."""
OVERALL = (("within", "within"), ("pooled", "pooled"), ("return_weight", "weight"))


def beta_text(measured: RewardSlope, terminal: Terminal, remarks: Sequence[str] = ()) -> str:
    """The whole answer as text, with a newline at its end.

    Args:
        remarks: sentences about the log's columns.
    """
    blocks = [
        _headline(measured, terminal),
        _overall(measured, terminal),
        *(_by_horizon(label, s, terminal) for label, s in measured.slopes.items()),
        _keyed(measured, terminal),
        bullets("Notes", measured.notes, terminal),
        quality_text(measured.quality, terminal, measured.source, remarks),
    ]
    return "\n".join("\n".join([*block, ""]) for block in blocks if block)


def _headline(measured: RewardSlope, terminal: Terminal) -> list[str]:
    head = "How much of the reward reaches each target (return weight: 1 all of it, 0 none):"
    lines = []
    if measured.invalid is not None:
        said = "This log cannot tell what corrections do:"
        lines += [terminal.paint(line, "bold") for line in terminal.paragraph(said)]
        lines += [*terminal.paragraph(measured.invalid, "  ", "  "), ""]
    lines += [terminal.paint(line, "bold") for line in terminal.paragraph(head)]
    for label, slopes in measured.slopes.items():
        lines += terminal.paragraph(f"{label}: {_reach(slopes.return_weight)}", "  ", "    ")
    for reason in _doubts(measured):
        lines += terminal.paragraph(f"Slopes: {reason}.")
    return lines


def _doubts(measured: RewardSlope) -> list[str]:
    """Why slopes are missing or cannot be relied on, each reason once."""
    overall = [s.overall for s in measured.slopes.values()]
    reasons = [e.reason for o in overall for e in (o.pooled, o.within) if e.reason]
    return list(dict.fromkeys(reasons))


def _reach(weight: Curve) -> str:
    """How the return weight runs from the last token back, in a sentence."""
    known = [c for c in weight.cells if c.estimate.value is not None]
    if not known:
        return "no rollout with all that this needs"
    first, last = known[0].estimate, known[-1].estimate
    assert first.value is not None and last.value is not None
    ends = f"{_weight(first)} at the last token"
    if len(known) > 1:
        ends += f", {_weight(last)} with {_range(known[-1])} tokens to go"
    below = [c for c in known if c.estimate.value is not None and c.estimate.value < HALF]
    return f"{ends}; below one half from {_range(below[0])} to go" if below else ends


def _weight(estimate: Estimate) -> str:
    if estimate.value == 0.0:
        return "0"
    return number(estimate.value, estimate.se if (estimate.se or 0.0) > 1e-9 else None)


def _overall(measured: RewardSlope, terminal: Terminal) -> list[str]:
    """One line per target: figures over all horizons, and the trend of the slope."""
    slopes = measured.slopes
    percent = f"{100 * measured.settings.level:g}% interval"
    columns = [Column("over all horizons", list(slopes), left=True)]
    columns += _figures([s.overall for s in slopes.values()], percent)
    lines = [s.trend.get("within") for s in slopes.values()]
    if all(line is None or line.slope.value is None for line in lines):
        lines = [s.trend.get("pooled") for s in slopes.values()]
    columns.append(Column("per doubling", [_trend(line) for line in lines], left=True, rank=1))
    return table(columns, terminal)


def _figures(overall: Sequence[OverallSlope], percent: str) -> list[Column]:
    columns = []
    for name, head in OVERALL:
        estimates: list[Estimate] = [getattr(o, name) for o in overall]
        rank = 0 if name == "within" else 2
        columns.append(Column(head, _values(estimates)))
        columns.append(Column(percent, _intervals(estimates), rank=rank))
    return columns


def _trend(line: Trend | None) -> str:
    if line is None or line.slope.value is None:
        return "-"
    se = line.slope.se
    bent = ", not a line" if line.misfit is not None and line.misfit < MISFIT else ""
    return f"{number(line.slope.value, se, sign=True)} +- {number(se, se)}{bent}"


def _by_horizon(label: str, slopes: TargetSlopes, terminal: Terminal) -> list[str]:
    """One line per cell of remaining horizon."""
    cells = slopes.pooled.cells
    head = terminal.paint(f"{label}, by tokens to go", "bold")
    if not cells:
        return [f"{label}: no cell"]
    within, pooled = _of(slopes.within), _of(slopes.pooled)
    weight, kappa = _of(slopes.return_weight), slopes.kappa_log10_median.cells
    percent = f"{100 * pooled[0].level:g}% interval"
    columns = [
        Column("to go", [_range(c) for c in cells]),
        Column("rollouts", [f"{e.n_rollouts:,}" for e in pooled]),
        Column("within", _values(within)),
        Column(percent, _intervals(within)),
        Column("pooled", _values(pooled)),
        Column(percent, _intervals(pooled), rank=3),
        Column("weight", _values(weight)),
        Column(percent, _intervals(weight), rank=3),
        *_kappa(kappa),
        Column("target on R", _companions(cells, "target_on_return"), rank=4),
        Column("V on R", _companions(cells, "critic_on_return"), rank=4),
    ]
    return [head, *table(columns, terminal)]


def _kappa(cells: Sequence[Cell]) -> list[Column]:
    """Quantiles of log10 kappa, and where kappa is 0, for how many."""
    zero = [_plain(cell.companions.get("zero_share")) for cell in cells]
    columns = [
        Column("log10 kappa", on_the_point([_log(c.estimate.value) for c in cells])),
        Column("5%", on_the_point([_log(_plain(c.companions.get("p05"))) for c in cells]), rank=2),
        Column("95%", on_the_point([_log(_plain(c.companions.get("p95"))) for c in cells]), rank=2),
    ]
    if any(zero):
        columns.append(Column("kappa 0", [share(z) if z else "" for z in zero], rank=1))
    return columns


def _keyed(measured: RewardSlope, terminal: Terminal) -> list[str]:
    """One line per key and target."""
    key = measured.settings.by
    if key is None:
        return []
    if not measured.by:
        return [f"By {key}: the log tells no {key} for any rollout"]
    pairs = [(entry.key, label, o) for entry in measured.by for label, o in entry.overall.items()]
    percent = f"{100 * measured.settings.level:g}% interval"
    columns = [
        Column(key, [str(k) for k, _, _ in pairs]),
        Column("target", [label for _, label, _ in pairs], left=True),
        Column("rollouts", [f"{o.pooled.n_rollouts:,}" for _, _, o in pairs]),
        *_figures([o for _, _, o in pairs], percent),
    ]
    return [terminal.paint(f"By {key}, over all horizons", "bold"), *table(columns, terminal)]


def _of(curve: Curve) -> list[Estimate]:
    return [cell.estimate for cell in curve.cells]


def _values(estimates: Sequence[Estimate]) -> list[str]:
    return on_the_point([_weight(e) for e in estimates])


def _intervals(estimates: Sequence[Estimate]) -> list[str]:
    return on_the_point([_ends(e) for e in estimates])


def _ends(estimate: Estimate) -> str:
    """An interval; nothing where the figure does not vary from prompt to prompt."""
    if not (estimate.se or 0.0) > 1e-9:
        return "exact" if estimate.se is not None else "-"
    return interval(estimate.ci_low, estimate.ci_high, estimate.se)


def _companions(cells: Sequence[Cell], name: str) -> list[str]:
    found = [cell.companions.get(name) for cell in cells]
    return on_the_point([short(getattr(e, "value", None)) for e in found])


def _plain(value: Companion) -> float | None:
    return float(value) if isinstance(value, float | int) else None


def _log(value: float | None) -> str:
    """A decimal exponent to two places; a dash where the quantile lies on kappa = 0."""
    return short(value)


def _range(cell: Cell) -> str:
    low, high = int(cell.low), int(cell.high)
    return f"{low:,}" if low == high else f"{low:,}-{high:,}"
