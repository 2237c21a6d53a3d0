"""From a finished `SlopeState` to results: curves, figures over all horizons, trends, κ."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from brace_diag.estimators import slope_estimates as se
from brace_diag.estimators import slope_kernels as kernels
from brace_diag.estimators.intervals import IntervalMaker, or_none
from brace_diag.estimators.slope_state import SlopeState
from brace_diag.estimators.slope_trend import trend
from brace_diag.results import Cell, Companion, Curve, Estimate
from brace_diag.results_slope import (
    OVERALL_NAMES,
    KeyedSlope,
    OverallSlope,
    TargetSlopes,
    Trend,
)
from brace_diag.settings import SlopeSettings, cell_edges
from brace_diag.sums import Jackknife, sup_t_critical

Counts = npt.NDArray[np.int64]

METHODS = {
    "within": "slope of target - V on G - V, less the prompt's means",
    "pooled": "slope of target - V on G - V",
    "return_weight": "mean of gamma^h C",
    "kappa": "mean of kappa",
    "target_on_return": "slope of the target on G",
    "critic_on_return": "slope of V on G",
}
QUANTILES = {"p05": 0.05, "median": 0.5, "p95": 0.95}
CONSTANT_REWARD = "the return is the same in every rollout: its slope tells of the critic alone"
OVERFLOW = "targets or products beyond float64: cap the ratios (c_bar, rho_bar)"


def estimate_slopes(
    state: SlopeState, settings: SlopeSettings, invalid: str | None = None
) -> dict[str, TargetSlopes]:
    """Everything of every target, by label; the state's open sets are closed here.

    Args: invalid: why no target that reads ratios can be believed, None where the log is sound.
    """
    state.finish()
    made = {}
    for k, spec in enumerate(state.specs):
        doubt = invalid.split(":")[0] if invalid and spec.reads_weights else None
        own = _Target(state, k, settings.level, doubt)
        made[spec.label] = TargetSlopes(
            spec=spec,
            within=own.curve("within"),
            pooled=own.pooled(),
            return_weight=own.curve("return_weight"),
            kappa_log10_median=own.kappa(),
            overall=own.overall(),
            trend=own.trends(),
        )
    return made


def estimate_key(key: int, state: SlopeState, settings: SlopeSettings) -> KeyedSlope:
    """Figures over all horizons of one step or staleness."""
    state.finish()
    overall = {
        spec.label: _Target(state, k, settings.level).overall()
        for k, spec in enumerate(state.specs)
    }
    return KeyedSlope(key, overall)


class _Target:
    """One target of a state: its jackknife, and estimates made from it."""

    def __init__(self, state: SlopeState, k: int, level: float, doubt: str | None = None) -> None:
        self.state, self.k, self.doubt = state, k, doubt
        self.maker = IntervalMaker(level)
        self.jack = se.slope_jackknife(state, k)
        self.tokens, self.rollouts = se.counts(state)
        self.within_tokens, self.within_rollouts = se.within_counts(state)
        self.cells = np.flatnonzero(self.tokens)
        self.edges = cell_edges(int(state.length[1])) if len(self.cells) else np.zeros(1, np.int64)
        self.constant_reward = bool(state.reward[0] == state.reward[1])

    def curve(self, name: str) -> Curve:
        """A figure by cell, with its sup-t band."""
        outputs = [self.jack.cell(name, c) for c in self.cells.tolist()]
        cells = tuple(self._cell(c, self.estimate(name, c)) for c in self.cells.tolist())
        return Curve("horizon", cells, _band(self.jack.jack, outputs, self.maker.level))

    def pooled(self) -> Curve:
        """The pooled slope, with the target's own slope on G and its floor beside it."""
        curve = self.curve("pooled")
        beside = ("target_on_return", "critic_on_return")
        cells = [
            replace(cell, companions={name: self.estimate(name, c) for name in beside})
            for cell, c in zip(curve.cells, self.cells.tolist(), strict=True)
        ]
        return replace(curve, cells=tuple(cells))

    def kappa(self) -> Curve:
        """Median of log10 κ, with the mean of κ, the tails and the share of zeros beside it."""
        made = []
        zeros = self.state.cells.array[:, :, self._at(kernels.ZERO)].sum(axis=0)
        for c in self.cells.tolist():
            n, n_zero = int(self.tokens[c]), round(float(zeros[c]))
            bins = self.state.bins[self.k, c]
            least, largest = self.state.ranges[self.k, c].tolist()
            found = {
                name: se.log_kappa_quantile(bins, least, largest, n_zero, p)
                for name, p in QUANTILES.items()
            }
            companions: dict[str, Companion] = {
                "mean": self.estimate("kappa", c),
                "p05": or_none(found["p05"]),
                "p95": or_none(found["p95"]),
                "zero_share": n_zero / n,
            }
            made.append(self._cell(c, self._median(c, found["median"]), companions))
        return Curve("horizon", tuple(made))

    def overall(self) -> OverallSlope:
        """Figures over all horizons."""
        return OverallSlope(**{name: self.estimate(name, None) for name in OVERALL_NAMES})

    def trends(self) -> dict[str, Trend]:
        """Lines through both slopes."""
        if not len(self.cells):
            return {}
        low = self.edges[:-1]
        inside, pooled = se.octave_jackknife(self.state, self.k, low)
        x = np.log2(se.mean_horizons(self.state, low) + 1.0)
        level = self.maker.level
        n_inside = int(self.within_tokens.sum()), int(self.within_rollouts.max(initial=0))
        n_pooled = int(self.tokens.sum()), int(self.rollouts.max(initial=0))
        lines = {
            "within": trend(inside, x, *n_inside, level),
            "pooled": trend(pooled, x, *n_pooled, level),
        }
        return {name: self._mark_line(line) for name, line in lines.items()}

    def estimate(self, name: str, cell: int | None) -> Estimate:
        """A figure in a cell, or over all horizons."""
        jack = self.jack.jack
        j = self.jack.overall(name) if cell is None else self.jack.cell(name, cell)
        inside = name == "within"
        tokens = self.within_tokens if inside else self.tokens
        rollouts = self.within_rollouts if inside else self.rollouts
        at = slice(None) if cell is None else slice(cell, cell + 1)
        made = self.maker.estimate(
            jack,
            j,
            n_tokens=int(tokens[at].sum()),
            # Every rollout has a token at h = 0, so the largest cell holds them all.
            n_rollouts=int(rollouts[at].max(initial=0)),
            method=METHODS[name],
            missing=self._missing(name, j, int(tokens[at].sum())),
        )
        if made.value is not None and made.se is None and made.reason is None:
            made = replace(
                made, reliable=False, reason="one prompt alone varies here: no standard error"
            )
        return self._doubted(made) if name in ("return_weight", "kappa") else self._mark(made)

    def _missing(self, name: str, j: int, n_tokens: int) -> str | None:
        value = self.jack.jack.value[j]
        if np.isfinite(value):
            return None
        if n_tokens == 0:
            if name == "within" and self.tokens.any():
                return "no prompt has two rollouts here: nothing to take its means over"
            return None
        first = self._at(0)
        own = self.state.cells.array[:, :, first : first + kernels.N_TARGET]
        if not (np.abs(own) < se.HUGE).all():
            return OVERFLOW
        return "zero variance"

    def _median(self, cell: int, value: float) -> Estimate:
        zero = value == -np.inf
        reason = "kappa is 0 for at least half of the tokens" if zero else None
        return Estimate(
            or_none(value),
            None,
            None,
            None,
            self.maker.level,
            int(self.tokens[cell]),
            int(self.rollouts[cell]),
            int(self.jack.jack.n_groups[self.jack.cell("kappa", cell)]),
            "median of log10 kappa from a histogram; no standard error",
            reliable=not zero and self.doubt is None,
            reason=reason or self.doubt,
        )

    def _cell(
        self, cell: int, estimate: Estimate, companions: dict[str, Companion] | None = None
    ) -> Cell:
        low, high = int(self.edges[cell]), int(self.edges[cell + 1]) - 1
        return Cell(low, high, estimate, companions or {})

    def _at(self, feature: int) -> int:
        return kernels.N_COMMON + self.k * kernels.N_TARGET + feature

    def _mark_line(self, line: Trend) -> Trend:
        return Trend(self._mark(line.slope), self._mark(line.intercept), line.misfit)

    def _mark(self, estimate: Estimate) -> Estimate:
        """A slope on a return that never varies is a number without a meaning."""
        if not self.constant_reward or estimate.value is None:
            return self._doubted(estimate)
        return replace(estimate, reliable=False, reason=CONSTANT_REWARD)

    def _doubted(self, estimate: Estimate) -> Estimate:
        """The same number, unreliable where the log's ratios are."""
        if self.doubt is None or estimate.value is None:
            return estimate
        return replace(estimate, reliable=False, reason=self.doubt)


def _band(jack: Jackknife, outputs: list[int], level: float) -> float | None:
    if not outputs:
        return None
    part = Jackknife(jack.value[outputs], jack.deviations[:, outputs], jack.n_groups[outputs])
    # A fixed seed: the band is part of the result and must not change from run to run.
    return sup_t_critical(part, level, np.random.default_rng(0))
