"""Is the log fit to judge? What `inspect` sums over a whole log."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from brace_diag.estimators.gap_cells import MAX_LOG_W, MIN_LOG_W, weights
from brace_diag.estimators.log_checks import LogProbe
from brace_diag.estimators.siblings import add_to_groups
from brace_diag.estimators.staleness import StalenessSums, spread
from brace_diag.quality import DataQuality
from brace_diag.rollouts import UNKNOWN, Rollouts
from brace_diag.rollouts_kernels import row_sums
from brace_diag.sums import GroupSums, jackknife, t_quantile

Array = npt.NDArray[np.float64]


@dataclass(slots=True)
class InspectionSums:
    """Everything `inspect` counts, batch by batch.

    Attributes:
        weights: (group, 1, 3) tokens with w, Σ(w - 1), Σ|log w|.
        lengths, rewards: of every rollout with a policy token.
        prompts: distinct prompts, as hashes.
        staleness: how often each occurs, copies left out.
    """

    weights: GroupSums = field(default_factory=lambda: GroupSums(3))
    probe: LogProbe = field(default_factory=lambda: LogProbe(budget=4_000_000))
    quality: DataQuality = field(default_factory=DataQuality)
    lengths: list[npt.NDArray[np.int64]] = field(default_factory=list)
    prompts: set[int] = field(default_factory=set)
    steps: tuple[int, int] | None = None
    staleness: StalenessSums = field(default_factory=StalenessSums)
    n_stale: int = 0
    n_moved: int = 0

    def __post_init__(self) -> None:
        self.weights.grow(1)

    def update(self, batch: Rollouts, first_seen: npt.NDArray[np.bool_]) -> None:
        alive = batch.lengths > 0
        self.lengths.append(batch.lengths[alive])
        self.prompts.update(np.unique(batch.prompt[alive]).tolist())
        self.steps = _widened(self.steps, batch.step)
        self.staleness.update(batch, first_seen)
        if batch.staleness is not None:
            self.n_stale += int((batch.staleness > 0).sum())
        self.probe.update(batch)
        self._weigh(batch, batch.has_w & alive & first_seen)

    def _weigh(self, batch: Rollouts, use: npt.NDArray[np.bool_]) -> None:
        mu, pi = batch.mu_logprobs, batch.pi_logprobs
        if mu is None or pi is None:
            return
        with np.errstate(invalid="ignore"):
            log_w = pi.astype(np.float64) - mu.astype(np.float64)
        log_w = np.where(np.isnan(log_w), 0.0, np.clip(log_w, MIN_LOG_W, MAX_LOG_W))
        w = np.empty_like(log_w)
        weights(log_w, w, len(log_w))
        rows = np.stack(
            [
                batch.lengths.astype(np.float64),
                row_sums(w - 1.0, batch.offsets),
                row_sums(np.abs(log_w), batch.offsets),
            ],
            axis=1,
        )
        self.n_moved += int((row_sums((log_w != 0.0).astype(np.float64), batch.offsets)[use]).sum())
        add_to_groups(rows[use], batch.group[use], self.weights.array[:, 0])

    def mean_weight(self) -> tuple[float, float, float] | None:
        """Mean of w over tokens and its 95 % interval, or None without weights."""
        present = self.weights.array[:, 0, 0] > 0
        if not present.any():
            return None
        jack = jackknife(_mean_u, self.weights.array[:, 0], present=present)
        half = float(t_quantile(0.975, jack.n_groups)[0]) * float(jack.se[0])
        mean = 1.0 + float(jack.value[0])
        return mean, mean - half, mean + half

    def mean_abs_log_w(self) -> float | None:
        total = self.weights.array[:, 0].sum(axis=0)
        return float(total[2] / total[0]) if total[0] > 0 else None


def _mean_u(sums: Array) -> Array:
    return (sums[:, 1] / sums[:, 0])[:, None]


def _widened(
    known: tuple[int, int] | None, column: npt.NDArray[np.int64] | None
) -> tuple[int, int] | None:
    told = None if column is None else column[column != UNKNOWN]
    if told is None or len(told) == 0:
        return known
    low, high = int(told.min()), int(told.max())
    return (low, high) if known is None else (min(low, known[0]), max(high, known[1]))


def staleness_summary(sums: StalenessSums) -> dict[str, float | int | None]:
    """Staleness of first tokens, last tokens and all tokens; None where the log does not tell."""
    first, last, tokens, span = (spread(c) for c in (sums.first, sums.last, sums.tokens, sums.span))
    return {
        "staleness_min": first.low,
        "staleness_median": first.median,
        "staleness_max": first.high,
        "staleness_last_median": last.median,
        "staleness_token_mean": tokens.mean,
        "staleness_unknown_share": first.unknown,
        "in_flight_share": span.positive,
        "in_flight_span_max": span.high,
    }


def summary(sums: InspectionSums, total_reward: Array) -> dict[str, float | int | None]:
    """Sizes and ranges by name."""
    lengths = np.concatenate(sums.lengths) if sums.lengths else np.zeros(0, np.int64)
    known = total_reward[np.isfinite(total_reward)]
    weight = sums.mean_weight()
    one = len(lengths) > 0
    return {
        "n_rows": sums.quality.n_rows,
        "n_rollouts": sums.quality.n_rollouts,
        "n_tokens": sums.quality.n_tokens,
        "n_prompts": len(sums.prompts),
        "length_min": int(lengths.min()) if one else None,
        "length_median": float(np.median(lengths)) if one else None,
        "length_max": int(lengths.max()) if one else None,
        "step_first": sums.steps[0] if sums.steps else None,
        "step_last": sums.steps[1] if sums.steps else None,
        **staleness_summary(sums.staleness),
        "reward_min": float(known.min()) if len(known) else None,
        "reward_mean": float(known.mean()) if len(known) else None,
        "reward_max": float(known.max()) if len(known) else None,
        "mean_abs_log_w": sums.mean_abs_log_w(),
        "mean_weight": weight[0] if weight else None,
    }
