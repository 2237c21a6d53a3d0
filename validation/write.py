"""The page and its figure, from what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from brace_diag._version import __version__

from .measure import FAMILIES, Measured, standard_error
from .rows import POOL

MARGIN, WDR_LIMIT = 0.1, 4.0
"""The rule's margin as a share of s_A, and the largest v at which wdr gives a magnitude."""

SHOWN = ("negligible", "inconclusive", "needs_probe", "needs_correction", "no_staleness", "invalid")
COLOURS = {
    "negligible": "#009E73",
    "inconclusive": "#C9C9C9",
    "needs_probe": "#56B4E9",
    "needs_correction": "#D55E00",
    "no_staleness": "#F0E442",
    "invalid": "#222222",
}
HATCHES = {"needs_probe": "//", "needs_correction": "", "no_staleness": ".."}

INTRO = """# How often the audit is right

Every row is measured on {families} families of token MDPs whose values are known exactly
(`brace_diag.tabular`): {pool} prompts, T tokens a response, a terminal 0/1 reward, a critic fitted
to mu with an error of its own. Each replicate draws prompts from one family, {group} rollouts of
each from mu, and is audited with the settings that `brace-diag audit` has by itself. *Drift* is
E_mu|log w| per token, *a* how far it points where the value is, *b* the exact gap V^pi - V^mu at
the first token, s_A the spread of the return within a prompt, v the within-prompt variance of the
log product; b / s_A is given as the mean and the range over the families. The margin is .1 s_A.
Numbers behind +- are Monte-Carlo standard errors; where no replicate of n said a verdict, its rate
is below 3/n with 95 % confidence.

{reading}

`make validation` writes this page and its figure (version {version}, {n} replicates a row).

![Share of each verdict by row](figures/validation.png)
"""


def _reading(found: Sequence[Measured]) -> str:
    """What the numbers below say, in sentences made from them."""
    nulls = [m for m in found if m.row.kind == "null"]
    harmless = [m for m in found if max(map(abs, m.ratios)) < MARGIN]
    large = [m for m in found if min(m.ratios) > 2.0 * MARGIN and m.v <= WDR_LIMIT]
    judged = [m for m in found if 0.0 < m.v <= WDR_LIMIT and m.intervals]
    lines = ["What to take from it:", ""]
    if nulls:
        wrong = sum(m.verdicts["needs_correction"] for m in nulls)
        lines.append(
            f"- Where nothing is to be corrected, `needs_correction` was said in {wrong} of "
            f"{sum(m.n for m in nulls)} logs."
        )
    if harmless:
        worst = max(harmless, key=lambda m: m.share("needs_correction"))
        lines.append(
            f"- Where the gap is inside the margin, at most in {_share(worst, 'needs_correction')} "
            f"of the logs of a row (largest in *{worst.row.name}*, {worst.row.n_prompts} prompts)."
        )
    if large:
        least = min(large, key=lambda m: m.share("needs_correction"))
        lines.append(
            f"- Where it is more than twice the margin in every family and v is at most "
            f"{WDR_LIMIT:g}, at least in {_share(least, 'needs_correction')} (*{least.row.name}*, "
            f"{least.row.n_prompts} prompts); `negligible` in at most "
            f"{max(m.share('negligible') for m in large):.3f}."
        )
    if judged:
        low, mean = min(judged, key=lambda m: m.coverage), np.mean([m.coverage for m in judged])
        width = "too narrow" if mean < 0.945 else "too wide" if mean > 0.955 else "as wide as said"
        lines.append(
            f"- Nominal 95 % intervals held the exact gap in {mean:.3f} of the logs, on average "
            f"over the rows where v is at most {WDR_LIMIT:g}, and at worst in {low.coverage:.3f} "
            f"(*{low.row.name}*, {low.row.n_prompts} prompts): on average they are {width}."
        )
    return "\n".join(lines)


def page(found: Sequence[Measured]) -> str:
    """The whole page."""
    lines = [
        INTRO.format(
            pool=POOL,
            group=8,
            families=FAMILIES,
            reading=_reading(found),
            version=__version__,
            n=found[0].n,
        )
    ]
    titles = {
        "null": "Nothing to correct",
        "drift": "A known gap",
        "held-out": "Parameters that no threshold was chosen on",
    }
    for kind, title in titles.items():
        rows = [m for m in found if m.row.kind == kind]
        lines += [f"## {title}", "", *_table(rows), ""]
    lines += ["## Coverage of the 95 % interval of b", "", *_coverage(found), ""]
    return "\n".join(lines)


def _table(rows: Sequence[Measured]) -> list[str]:
    said = (verdict.replace("_", " ") for verdict in SHOWN[:5])
    heads = ["row", "prompts", "b / s_A", "v", *said, "control off", "RMSE of b / s_A"]
    lines = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    for m in rows:
        cells = [
            m.row.name,
            str(m.row.n_prompts),
            _ratio(m),
            f"{m.v:.2f}",
            *(_share(m, verdict) for verdict in SHOWN[:5]),
            f"{m.miscalibrated / m.n:.2f}",
            "-" if math.isnan(m.rmse) else f"{m.rmse:.3f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ratio(m: Measured) -> str:
    """Mean over the families, and their range where they differ."""
    low, high = min(m.ratios), max(m.ratios)
    if high - low < 5e-4:  # equal in the digits shown; an exact 0 may be 1e-17
        return f"{m.ratio:+.3f}"
    return f"{m.ratio:+.3f} ({low:+.3f} to {high:+.3f})"


def _share(m: Measured, verdict: str) -> str:
    share = m.share(verdict)
    if share in (0.0, 1.0):
        return f"{share:.0f}"
    return f"{share:.3f} +- {standard_error(share, m.n):.3f}"


def _coverage(found: Sequence[Measured]) -> list[str]:
    lines = ["| row | prompts | v | intervals | coverage |", "|---|---:|---:|---:|---:|"]
    for m in found:
        if m.v <= 0.0 or not m.intervals:
            continue
        cover = f"{m.coverage:.3f} +- {standard_error(m.coverage, m.intervals):.3f}"
        lines.append(f"| {m.row.name} | {m.row.n_prompts} | {m.v:.2f} | {m.intervals} | {cover} |")
    return lines


def figure(found: Sequence[Measured], path: Path) -> None:
    """Bars of the share of each verdict, a row each, the exact gap beside it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    fig = Figure(figsize=(7.5, 0.30 * len(found) + 1.3), layout="constrained")
    FigureCanvasAgg(fig)
    ax = fig.subplots()
    left = [0.0] * len(found)
    for verdict in SHOWN:
        shares = [m.share(verdict) for m in found]
        if not any(shares):
            continue
        ax.barh(
            range(len(found)), shares, left=left, height=0.72, color=COLOURS[verdict],
            edgecolor="white", linewidth=0.6, hatch=HATCHES.get(verdict, ""),
            label=verdict.replace("_", " "),
        )  # fmt: skip
        left = [a + b for a, b in zip(left, shares, strict=True)]
    labels = [f"{m.row.name}, {m.row.n_prompts} prompts" for m in found]
    ax.set_yticks(range(len(found)), labels, fontsize=7.5)
    for i, m in enumerate(found):
        ax.text(1.015, i, f"{m.ratio:+.3f}", va="center", fontsize=7.5)
    ax.text(1.015, -0.9, "b / s_A", va="center", fontsize=7.5, style="italic")
    ax.invert_yaxis()
    ax.set_ylim(len(found) - 0.5, -0.6)
    ax.set_xlim(0.0, 1.0)
    ax.set_xlabel(f"share of {found[0].n} replicates; the margin is b / s_A = .1", fontsize=8)
    ax.tick_params(axis="x", labelsize=8)
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(axis="y", length=0)
    fig.legend(loc="outside upper center", ncols=5, fontsize=8, frameon=False)
    fig.savefig(path, dpi=200)
