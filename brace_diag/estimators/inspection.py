"""Is the log fit to judge? Sums over a whole log, and the checks drawn from them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from brace_diag.estimators.log_checks import LogProbe
from brace_diag.estimators.siblings import add_to_groups
from brace_diag.quality import DataQuality
from brace_diag.results import Check
from brace_diag.rollouts import UNKNOWN, Rollouts
from brace_diag.rollouts_kernels import row_sums
from brace_diag.sums import GroupSums, jackknife, t_quantile
from brace_diag.vectorexp import exp_into

Array = npt.NDArray[np.float64]
MEAN_WEIGHT_TOLERANCE = 0.01
FEW_CLUSTERS = 20


@dataclass(slots=True)
class ValueRange:
    """Critic values against the range of returns that the log shows.

    Attributes:
        low, high: smallest and largest return to go of the log.
        n_values, n_outside: finite critic values; those outside the range.
    """

    low: float
    high: float
    n_values: int = 0
    n_outside: int = 0
    smallest: float = np.inf
    largest: float = -np.inf

    def update(self, batch: Rollouts) -> None:
        values = batch.values
        if values is None:
            return
        told = values[np.isfinite(values)]
        if len(told):
            self.n_values += len(told)
            # Compared in the values' own type: 20 million floats, no copies.
            slack = 1e-6 * max(abs(self.low), abs(self.high), 1e-12)
            self.n_outside += int(
                (told < self.low - slack).sum() + (told > self.high + slack).sum()
            )
            self.smallest = min(self.smallest, float(told.min()))
            self.largest = max(self.largest, float(told.max()))

    @property
    def broken(self) -> bool:
        """Most values can be no return at all."""
        return self.high > self.low and self.n_outside > 0.5 * max(self.n_values, 1)

    def words(self) -> str:
        share = 100.0 * self.n_outside / max(self.n_values, 1)
        return (
            f"{share:.0f} % of the critic's values lie outside the returns' range "
            f"[{self.low:g}, {self.high:g}] (values from {self.smallest:.3g} to {self.largest:.3g})"
        )


def returns_range(batches_total: Array, bootstrap: float = 0.0) -> tuple[float, float]:
    """Smallest and largest known return; (0, 0) where none is known."""
    known = batches_total[np.isfinite(batches_total)]
    if len(known) == 0:
        return 0.0, 0.0
    return float(min(known.min(), bootstrap)), float(max(known.max(), bootstrap))


@dataclass(slots=True)
class InspectionSums:
    """Everything `inspect` counts, batch by batch.

    Attributes:
        weights: (group, 1, 3) tokens with w, Σ(w - 1), Σ|log w|.
        lengths, rewards: of every rollout with a policy token.
        prompts: distinct prompts, as hashes.
    """

    weights: GroupSums = field(default_factory=lambda: GroupSums(3))
    probe: LogProbe = field(default_factory=lambda: LogProbe(budget=4_000_000))
    quality: DataQuality = field(default_factory=DataQuality)
    lengths: list[npt.NDArray[np.int64]] = field(default_factory=list)
    prompts: set[int] = field(default_factory=set)
    steps: tuple[int, int] | None = None
    staleness: tuple[int, int] | None = None
    n_stale: int = 0
    n_moved: int = 0

    def __post_init__(self) -> None:
        self.weights.grow(1)

    def update(self, batch: Rollouts, first_seen: npt.NDArray[np.bool_]) -> None:
        alive = batch.lengths > 0
        self.lengths.append(batch.lengths[alive])
        self.prompts.update(np.unique(batch.prompt[alive]).tolist())
        self.steps = _widened(self.steps, batch.step)
        self.staleness = _widened(self.staleness, batch.staleness)
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
        log_w = np.where(np.isnan(log_w), 0.0, np.maximum(log_w, -800.0))
        w = np.empty_like(log_w)
        exp_into(log_w, w, len(log_w))
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
        "staleness_min": sums.staleness[0] if sums.staleness else None,
        "staleness_max": sums.staleness[1] if sums.staleness else None,
        "reward_min": float(known.min()) if len(known) else None,
        "reward_mean": float(known.mean()) if len(known) else None,
        "reward_max": float(known.max()) if len(known) else None,
        "mean_abs_log_w": sums.mean_abs_log_w(),
        "mean_weight": weight[0] if weight else None,
    }


def checks(sums: InspectionSums, values: ValueRange | None) -> tuple[Check, ...]:
    """All checks in order of weight; each says what it saw even when all is well."""
    q = sums.quality
    found = [
        *_alignment(sums),
        *_policy_copied(sums),
        *_fills(q),
        *_impossible(q),
        *_mean_weight(sums),
        *_critic(values),
        *_grid(sums, q),
        *_rows(q),
        *_clusters(sums, q),
    ]
    return tuple(found)


def _alignment(sums: InspectionSums) -> list[Check]:
    if sums.probe.n_compared == 0:
        return []
    lag = sums.probe.best_lag()
    if lag is None:
        return [Check("alignment", "ok", "pi fits mu best without a shift")]
    return [
        Check(
            "alignment",
            "fail",
            f"MISALIGNED lag={lag:+d}: pi_logprobs fits mu_logprobs shifted by {lag:+d} token far "
            "better than unshifted",
            "log both policies' log-prob of the same sampled token at the same index; "
            "a next-token shift in the trainer is the usual cause",
        )
    ]


def _policy_copied(sums: InspectionSums) -> list[Check]:
    if sums.probe.n_compared == 0:
        return []
    stale = sums.n_stale
    if sums.probe.copied() and stale:
        return [
            Check(
                "pi_copied",
                "fail",
                "pi is bit-identical to mu on "
                f"{100 * sums.probe.n_equal / sums.probe.n_compared:.1f} % "
                f"of tokens although {stale} rollouts are stale: copied, not recomputed; "
                "a gap of 0 is no evidence",
                "recompute pi_logprobs with the policy being updated before logging",
            )
        ]
    if sums.n_moved == 0:
        return [
            Check(
                "staleness",
                "note",
                "no staleness logged: pi equals mu on every token",
                "nothing to estimate here; check that pi was recomputed if training is "
                "asynchronous",
            )
        ]
    return [Check("pi_copied", "ok", "pi differs from mu")]


def _fills(q: DataQuality) -> list[Check]:
    n = q.mu_filled + q.pi_filled
    if n == 0:
        return [Check("fills", "ok", "no fill values among the log-probs")]
    return [
        Check(
            "fills",
            "warn",
            f"{q.mu_filled} mu and {q.pi_filled} pi log-probs are fill values (-9999, 1.0, "
            "trailing "
            "exact zeros); taken as missing",
            "log the sampler's log-prob for these tokens, or take them off policy_mask if the "
            "policy did not sample them",
        )
    ]


def _impossible(q: DataQuality) -> list[Check]:
    found = []
    if q.mu_impossible:
        found.append(
            Check(
                "impossible_samples",
                "warn",
                f"{q.mu_impossible} sampled tokens have mu log-prob -inf: mu cannot have drawn "
                "them",
                "their rollouts are left out of w statistics; check for forced tokens in "
                "policy_mask",
            )
        )
    if q.mu_missing or q.pi_missing:
        found.append(
            Check(
                "missing_logprobs",
                "warn",
                f"{q.mu_missing} mu and {q.pi_missing} pi log-probs are missing on policy tokens; "
                f"{q.rollouts_without_w} of {q.n_rollouts} rollouts are left out of w statistics",
                "null is not 0: log them, or mask the tokens if the policy did not sample them",
            )
        )
    return found


def _mean_weight(sums: InspectionSums) -> list[Check]:
    weight = sums.mean_weight()
    if weight is None:
        return []
    mean, low, high = weight
    words = f"mean pi/mu over tokens is {mean:.4f} (95 % {low:.4f} to {high:.4f})"
    if abs(mean - 1.0) <= MEAN_WEIGHT_TOLERANCE or low <= 1.0 <= high:
        return [Check("mean_weight", "ok", f"{words}; an importance ratio has mean 1")]
    cause = (
        "below 1: mu's support may be cut (top-p, top-k) while pi's is not"
        if mean < 1.0
        else "above 1: temperature or raw log-probs may differ between sampler and trainer; "
        "dividing log-probs by T does not mend it, since they no longer sum to 1"
    )
    return [
        Check(
            "mean_weight",
            "fail",
            f"log-prob definitions differ: {words}, not 1; {cause}",
            "log mu as it sampled (processed log-probs), and pi with the same processing",
        )
    ]


def _critic(values: ValueRange | None) -> list[Check]:
    if values is None or values.n_values == 0:
        return []
    if values.high <= values.low:
        return [Check("critic_range", "note", "all returns are equal: the critic cannot be judged")]
    if values.broken:
        return [
            Check(
                "critic_range",
                "fail",
                f"CRITIC_INVALID: {values.words()}: broken or uninitialised, not stale",
                "mend the critic (value head, normalisation, logging of its outputs) first",
            )
        ]
    return [Check("critic_range", "note" if values.n_outside else "ok", values.words())]


def _grid(sums: InspectionSums, q: DataQuality) -> list[Check]:
    grid = sums.probe.grid()
    positive = q.mu_positive + q.pi_positive
    found = []
    if grid is not None:
        spacing = "2^-5 for |log-prob| in [4, 8)" if grid == "bfloat16" else "2^-8 in [4, 8)"
        found.append(
            Check(
                "precision",
                "warn",
                f"mu log-probs lie on the {grid} grid (spacing {spacing}): smaller differences "
                "between pi and mu are rounding, not drift",
                "log log-probs in float32",
            )
        )
    if positive:
        found.append(
            Check(
                "positive_logprobs",
                "note" if grid else "warn",
                f"{positive} log-probs are above 0 (mu {q.mu_positive}, pi {q.pi_positive})",
                None if grid else "a log-prob cannot be positive: check what the column holds",
            )
        )
    return found


def _rows(q: DataQuality) -> list[Check]:
    found = []
    if q.n_duplicates:
        found.append(
            Check(
                "duplicates",
                "warn",
                f"{q.n_duplicates} of {q.n_rows} rows repeat an earlier row; each is used once",
                "padding a batch with copies changes every mean: write rollouts once",
            )
        )
    if q.n_empty:
        text = f"{q.n_empty} rows have no policy token"
        if q.rewards_on_empty:
            text += f", {q.rewards_on_empty} of them with a reward; means leave them out"
        found.append(Check("empty_rows", "note", text))
    if q.rewards_missing:
        found.append(
            Check(
                "rewards", "warn", f"{q.rewards_missing} rollouts have no reward and are left out"
            )
        )
    if q.rewards_folded:
        found.append(
            Check(
                "rewards_folded",
                "note",
                f"{q.rewards_folded} rewards sat on non-policy tokens and were moved to policy "
                "tokens; "
                "the sums are kept",
            )
        )
    if q.truncated_without_bootstrap:
        found.append(
            Check(
                "truncation",
                "note",
                f"{q.truncated_without_bootstrap} of {q.n_truncated} truncated rollouts have no "
                "bootstrap_value; 0 is used",
            )
        )
    return found


def _clusters(sums: InspectionSums, q: DataQuality) -> list[Check]:
    if q.prompts_missing:
        return [
            Check(
                "clusters",
                "warn",
                f"{q.prompts_missing} rollouts have no prompt_id: each is its own cluster; if they "
                "share prompts, every interval is too narrow",
                "log prompt_id (any string or int that is the same for rollouts of one prompt)",
            )
        ]
    n = len(sums.prompts)
    if n < FEW_CLUSTERS:
        return [Check("clusters", "warn", f"{n} prompts: intervals are rough below {FEW_CLUSTERS}")]
    return [Check("clusters", "ok", f"{n} prompts")]
