"""Result of the importance products: how fast the weights' product falls, and whether they are
ratios."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

from brace_diag.errors import InputError
from brace_diag.quality import DataQuality
from brace_diag.results import Curve, Estimate
from brace_diag.settings import By, StalenessKind

if TYPE_CHECKING:
    import polars as pl

Verdict = Literal[
    "importance_ratio",
    "no_staleness",
    "misaligned",
    "copied",
    "engine_mismatch",
    "miscalibrated",
    "unknown",
]
"""Whether w is an importance ratio: E_mu[w] = 1 within tolerance, or why it is not."""


@dataclass(frozen=True, slots=True)
class ImportanceSettings:
    """What `importance_products` is asked for.

    Attributes:
        c_bar, rho_bar: caps of the trace and of the residual weight, above 0 or inf.
        gamma, lam: discount and trace decay per policy token, in (0, 1].
        level: level of the intervals, in (0, 1).
        by: key of the keyed estimates, or None.
        staleness: which token's version makes the key `staleness`.
        eps: return weight at which a horizon counts as used up, in (0, 1).
        lag: of the long-run variance; None for ⌊4 (T/100)^(2/9)⌋ (Newey & West 1994), T the
            tokens of each rollout.
    """

    c_bar: float = 1.1
    rho_bar: float = 1.2
    gamma: float = 1.0
    lam: float = 1.0
    level: float = 0.95
    by: By | None = None
    staleness: StalenessKind = "first"
    eps: float = 0.01
    lag: int | None = None

    def __post_init__(self) -> None:
        for name in ("c_bar", "rho_bar"):
            if not getattr(self, name) > 0.0:
                raise InputError(f"{name} is {getattr(self, name)}; it must be above 0, or inf")
        for name in ("gamma", "lam"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise InputError(
                    f"{name} is {getattr(self, name)}; it must be above 0 and at most 1"
                )
        for name in ("level", "eps"):
            if not 0.0 < getattr(self, name) < 1.0:
                raise InputError(
                    f"{name} is {getattr(self, name)}; it must lie strictly between 0 and 1"
                )
        if self.by not in (None, "step", "staleness"):
            raise InputError(f"by is {self.by!r}; allowed: none, step, staleness")
        if self.staleness not in ("first", "last"):
            raise InputError(f"staleness is {self.staleness!r}; allowed: first, last")
        if self.lag is not None and not (isinstance(self.lag, int) and self.lag >= 0):
            raise InputError(f"lag is {self.lag!r}; it must be a whole number, at least 0")

    @property
    def log_discount(self) -> float:
        """log(γλ), what every token adds to a log-product."""
        return math.log(self.gamma * self.lam)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RatioCheck:
    """Is w an importance ratio?

    Attributes:
        verdict: see `Verdict`; cause: the likely cause where it is not one, else None.
        peaked, other: mean of w over tokens that mu samples with probability 1/2 or more, and over
            the others; share_below_one: share of tokens with w < 1.
    """

    verdict: Verdict
    cause: str | None
    peaked: Estimate
    other: Estimate
    share_below_one: Estimate


@dataclass(frozen=True, slots=True)
class Carrier:
    """One place or token that carries |log w| > 5.

    Attributes:
        kind: `token_id`, `position` or `horizon`; low, high: the id, or the cell, inclusive.
        count, share: extremes there, and their share of all.
    """

    kind: Literal["token_id", "position", "horizon"]
    low: int
    high: int
    count: int
    share: float


@dataclass(frozen=True, slots=True)
class Tails:
    """Both tails of log w.

    Attributes:
        lowest, highest: extremes, -inf where pi cannot draw a token; None without tokens.
        quantiles: probability -> quantile of log w, from bins an eighth of an octave wide.
        magnitude: edges of |log w|; above, below: share of tokens with log w >= and <= minus each.
        n_extreme: tokens with |log w| > 5; carriers: what carries them, the largest shares first.
        concentrated: what a single token id or place that carries most of them means, or None.
    """

    lowest: float | None
    highest: float | None
    quantiles: Mapping[float, float | None]
    magnitude: tuple[float, ...]
    above: tuple[float, ...]
    below: tuple[float, ...]
    n_extreme: int
    carriers: tuple[Carrier, ...]
    concentrated: str | None


@dataclass(frozen=True, slots=True)
class WeightFigures:
    """The figures of the whole log, or of one step or staleness.

    Attributes:
        m, sigma: eq 13: mean and sd per token of log(γλ) + log min(c_bar, w); sigma_hac: long-run
            sd about each prompt's mean; tau_prompt: sd between prompts of the per-token mean.
        *_uncapped: the same without the cap.
        usable_horizon, usable_horizon_uncapped: log(1/eps)/|m|, eq 45, in tokens.
        mean_weight, u_control: mean of w per token, mean over rollouts of Σ(w - 1): 1 and 0 for an
            importance ratio.
        mean_abs_log_w: mean |log w| per token.
        kl_k1, kl_k3: estimates of KL(mu|pi) per token, E[-log w] and E[w - 1 - log w].
        chi2_token: E[(w - 1)²]; log_chi2_rollout: log E[(W - 1)²], W = Π w of a rollout.
        ess_token, ess_rollout: effective share (Σw)²/(n Σw²) of tokens, and of rollouts with W;
            ess_token_capped: with min(rho_bar, w); ess_rollout_capped: with Π min(c_bar, w).
        clip_rho_bar, clip_c_bar: share of tokens with w above the cap.
    """

    m: Estimate
    sigma: Estimate
    sigma_hac: Estimate
    tau_prompt: Estimate
    m_uncapped: Estimate
    sigma_uncapped: Estimate
    sigma_hac_uncapped: Estimate
    tau_prompt_uncapped: Estimate
    usable_horizon: Estimate
    usable_horizon_uncapped: Estimate
    mean_weight: Estimate
    u_control: Estimate
    mean_abs_log_w: Estimate
    kl_k1: Estimate
    kl_k3: Estimate
    chi2_token: Estimate
    log_chi2_rollout: Estimate
    ess_token: Estimate
    ess_token_capped: Estimate
    ess_rollout: Estimate
    ess_rollout_capped: Estimate
    clip_rho_bar: Estimate
    clip_c_bar: Estimate

    def to_dict(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            f.name: getattr(self, f.name).to_dict()
            for f in fields(self)
            if not f.name.startswith("clip_")
        }
        out["clip_share"] = {
            "rho_bar": self.clip_rho_bar.to_dict(),
            "c_bar": self.clip_c_bar.to_dict(),
        }
        return out


@dataclass(frozen=True, slots=True)
class KeyedWeights:
    """Figures of one step or staleness."""

    key: int
    figures: WeightFigures

    def to_dict(self) -> dict[str, Any]:
        return {"key": self.key} | self.figures.to_dict()


@dataclass(frozen=True, slots=True)
class ImportanceProducts:
    """Everything `importance_products` measured.

    Attributes:
        source: what was read, in words.
        settings, quality: what was asked for and what the log held.
        figures: see `WeightFigures`.
        log_products: by window length n (low = high = n): observed mean of the log-product of n
            tokens, beside it `observed_sd`, `quantile_low` and `quantile_high` at the level,
            `forecast_mean` n m, `spread_naive` sqrt(n) sigma, `spread_hac` sqrt(n) s_HAC,
            `spread_prompt` sqrt(n s_HAC² + n² tau²), the share of windows inside n m ± z spread as
            `coverage_*`, `mean_product` E[C] and `n_windows`.
        log_products_uncapped: the same without the cap.
        half_life, half_life_one: tokens after which E[C] is below 1/2, at c_bar and at c_bar = 1;
            half_life_rule: 1.39/E|log w|, which holds at c_bar = 1.
        pareto_k, pareto_k_limit: k-hat of the rollouts' weights, and up to where it is trusted.
        ratio, tails: see their classes.
        noise_floor, stale_abs_log_w, excess_abs_log_w: mean |log w| of rollouts of staleness 0, of
            those above 0, and the difference.
        abs_by_position, abs_by_horizon: mean |log w| by position and by distance to the end, with
            `extreme_share`, the share of |log w| > 5.
        invalid: why no figure that rests on w can be believed, None where the log is sound.
        by: keyed figures, in order of the key.
        notes: sentences that a reader must see.
    """

    source: str
    settings: ImportanceSettings
    quality: DataQuality
    figures: WeightFigures
    log_products: Curve
    log_products_uncapped: Curve
    half_life: Estimate
    half_life_one: Estimate
    half_life_rule: Estimate
    pareto_k: float | None
    pareto_k_limit: float
    ratio: RatioCheck
    tails: Tails
    noise_floor: Estimate
    stale_abs_log_w: Estimate
    excess_abs_log_w: Estimate
    abs_by_position: Curve
    abs_by_horizon: Curve
    invalid: str | None
    by: tuple[KeyedWeights, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The `results` block of the JSON document."""
        results = self.figures.to_dict()
        for name in (
            "log_products", "log_products_uncapped", "half_life", "half_life_one",
            "half_life_rule", "noise_floor", "stale_abs_log_w", "excess_abs_log_w",
            "abs_by_position", "abs_by_horizon",
        ):  # fmt: skip
            results[name] = getattr(self, name).to_dict()
        results |= {
            "pareto_k": self.pareto_k,
            "pareto_k_limit": self.pareto_k_limit,
            "ratio": _ratio(self.ratio),
            "tails": _tails(self.tails),
            "invalid": self.invalid,
        }
        if self.settings.by is not None:
            results["by"] = {"key": self.settings.by, "entries": [k.to_dict() for k in self.by]}
        return results

    def to_frame(self) -> pl.DataFrame:
        """One row per window length: observed and forecast log-products, capped and uncapped."""
        import polars as pl

        rows = []
        pairs = zip(self.log_products.cells, self.log_products_uncapped.cells, strict=True)
        for cell, other in pairs:
            row: dict[str, Any] = {"n": int(cell.low)}
            for suffix, one in (("", cell), ("_uncapped", other)):
                row[f"mean{suffix}"] = one.estimate.value
                row[f"mean_se{suffix}"] = one.estimate.se
                row |= {
                    f"{name}{suffix}": value.value if isinstance(value, Estimate) else value
                    for name, value in one.companions.items()
                }
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)


def _ratio(ratio: RatioCheck) -> dict[str, Any]:
    return {
        "verdict": ratio.verdict,
        "cause": ratio.cause,
        "mean_weight_peaked": ratio.peaked.to_dict(),
        "mean_weight_other": ratio.other.to_dict(),
        "share_below_one": ratio.share_below_one.to_dict(),
    }


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value


def _tails(tails: Tails) -> dict[str, Any]:
    return {
        "lowest": _finite(tails.lowest),
        "highest": tails.highest,
        "quantiles": [{"probability": p, "value": q} for p, q in tails.quantiles.items()],
        "n_extreme": tails.n_extreme,
        "carriers": [asdict(carrier) for carrier in tails.carriers],
        "concentrated": tails.concentrated,
    }
