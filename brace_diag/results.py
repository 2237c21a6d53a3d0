"""Results: small frozen objects that plots, reports and the command line read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from brace_diag.quality import DataQuality
from brace_diag.settings import GapSettings

if TYPE_CHECKING:
    import polars as pl

Gate = Literal["good", "fair", "direction", "refused", "unknown"]
"""Trust in a gap at one position: v<=1, v<=4, v<=10, beyond, not measurable."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One number with its clustered interval.

    Attributes:
        value, se: estimate and standard error, None where they do not exist (see `reason`).
        ci_low, ci_high: interval at `level`, t with n_clusters - 1 degrees of freedom.
        n_tokens, n_rollouts: what the estimate is over.
        n_clusters: non-empty groups of prompts.
        method: how it was made, in a few words.
        reliable: False where clusters are few, or a gate says so.
        reason: why it is null or unreliable, None otherwise.
    """

    value: float | None
    se: float | None
    ci_low: float | None
    ci_high: float | None
    level: float
    n_tokens: int
    n_rollouts: int
    n_clusters: int
    method: str
    reliable: bool
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "value": _finite(self.value),
            "se": _finite(self.se),
            "ci_low": _finite(self.ci_low),
            "ci_high": _finite(self.ci_high),
            "level": self.level,
            "n_tokens": self.n_tokens,
            "n_rollouts": self.n_rollouts,
            "n_clusters": self.n_clusters,
            "method": self.method,
            "reliable": self.reliable,
            "reason": self.reason,
        }


DirectKind = Literal["fresh", "staleness_0"]
"""`fresh`: rollouts that pi drew for the purpose. `staleness_0`: those of the log that the policy
being updated drew itself, beside older ones of the same prompt and step."""


@dataclass(frozen=True, slots=True)
class DirectGap:
    """The gap at the first token from returns alone, without a weight.

    Attributes:
        kind: where the rollouts of pi come from.
        b: E_pi[R] - E_mu[R]; of staleness_0 for the older rollouts only.
        n_prompts: prompts that both have; 0 where the two are not paired.
        n_drawn, n_logged: rollouts of pi and of mu behind it.
        z: difference to the estimate by weights, in standard errors; None without one.
    """

    kind: DirectKind
    b: Estimate
    n_prompts: int
    n_drawn: int
    n_logged: int
    z: float | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "b": self.b.to_dict(),
            "n_prompts": self.n_prompts,
            "n_drawn": self.n_drawn,
            "n_logged": self.n_logged,
            "z": _finite(self.z),
        }


Companion = Estimate | float | int | str | bool | None


@dataclass(frozen=True, slots=True)
class Cell:
    """An estimate over the indices low .. high (both inclusive) of a curve's axis.

    `companions` are the numbers printed beside it, by name; each question names its own.
    """

    low: float
    high: float
    estimate: Estimate
    companions: Mapping[str, Companion] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return (
            {"low": self.low, "high": self.high}
            | self.estimate.to_dict()
            | {name: _plain(value) for name, value in self.companions.items()}
        )


@dataclass(frozen=True, slots=True)
class Curve:
    """Estimates along an axis.

    Attributes:
        axis: position, horizon or relative.
        cells: in increasing order of `low`.
        simultaneous: critical value of the sup-t band over all cells at the same level (multiply
            each se by it), or None where it cannot be had.
    """

    axis: str
    cells: tuple[Cell, ...]
    simultaneous: float | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "axis": self.axis,
            "simultaneous_critical": _finite(self.simultaneous),
            "cells": [cell.to_dict() for cell in self.cells],
        }


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """Batch figures of eq 7, all at the first policy token.

    Attributes:
        b_hat: gap V^pi - V^mu at position 0.
        reward_mu, reward_pi: E_mu[R] and E_pi[R] = E_mu[R] + b_hat.
        critic_mean: mean critic at the first policy token.
        critic_token_mean: mean critic over all policy tokens.
        g_pi_hat, g_mu_hat: |critic_mean - E_pi[R]| and |critic_mean - E_mu[R]|.
        g_pi_signed, g_mu_signed: the same with sign; positive: the critic is too high.
        return_sd: s_A, root of the mean within-prompt variance of the return at position 0.
    """

    b_hat: Estimate
    reward_mu: Estimate
    reward_pi: Estimate
    critic_mean: Estimate
    critic_token_mean: Estimate
    g_pi_hat: Estimate
    g_mu_hat: Estimate
    g_pi_signed: Estimate
    g_mu_signed: Estimate
    return_sd: Estimate

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name).to_dict() for name in BATCH_NAMES}


BATCH_NAMES = (
    "b_hat",
    "reward_mu",
    "reward_pi",
    "critic_mean",
    "critic_token_mean",
    "g_pi_hat",
    "g_mu_hat",
    "g_pi_signed",
    "g_mu_signed",
    "return_sd",
)


@dataclass(frozen=True, slots=True)
class KeyedGap:
    """Batch figures (and, if asked, the gap by position) of one step or one staleness."""

    key: int
    batch: BatchFigures
    gap: Curve
    gate: Gate
    within_var_log_product: float | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "gate": self.gate,
            "within_var_log_product": _finite(self.within_var_log_product),
            "batch": self.batch.to_dict(),
            "gap": self.gap.to_dict(),
        }


@dataclass(frozen=True, slots=True)
class ValueGap:
    """Where and how much V^pi differs from V^mu, and the critic from both.

    Attributes:
        source: what was read, in words.
        settings, quality: what was asked for and what the log held.
        batch: figures at the first policy token.
        gap: b(t) = V^pi - V^mu by position (wdr), each cell with `first_order`, `doubly_robust`,
            `within_var_log_product`, `gate`, `ess_fraction`, `pareto_k`, `mean_log_product`.
        critic_bias: V - V^pi by position, one joint standard error.
        saturation_z: paired z of wdr(tau=5) against first_order at position 0.
        mean_weight: mean of pi/mu over tokens; 1 where w is an importance ratio.
        u_control: mean over rollouts of Σ(w - 1); 0 where w is an importance ratio.
        gate: trust in b at position 0.
        whitening: what advantage whitening cannot remove, shares of E[b^2].
        probe_rollouts: fresh rollouts from pi whose direct estimate resolves the margin .1 s_A.
        invalid: why no figure that rests on w can be believed, None where the log is sound.
        by: keyed estimates, in order of the key.
        notes: sentences that a reader must see.
        direct: the gap from returns alone, where rollouts of pi are at hand.
    """

    source: str
    settings: GapSettings
    quality: DataQuality
    batch: BatchFigures
    gap: Curve
    critic_bias: Curve
    saturation_z: Estimate
    mean_weight: Estimate
    u_control: Estimate
    gate: Gate
    whitening: Mapping[str, Companion]
    probe_rollouts: int | None
    invalid: str | None
    by: tuple[KeyedGap, ...]
    notes: tuple[str, ...]
    direct: tuple[DirectGap, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The `results` block of the JSON document."""
        results: dict[str, Any] = {
            "batch": self.batch.to_dict(),
            "gap": self.gap.to_dict(),
            "critic_bias": self.critic_bias.to_dict(),
            "saturation_z": self.saturation_z.to_dict(),
            "mean_weight": self.mean_weight.to_dict(),
            "u_control": self.u_control.to_dict(),
            "gate": self.gate,
            "whitening": {name: _plain(value) for name, value in self.whitening.items()},
            "probe_rollouts": self.probe_rollouts,
            "invalid": self.invalid,
            "direct": [one.to_dict() for one in self.direct],
        }
        if self.settings.by is not None:
            results["by"] = {"key": self.settings.by, "entries": [k.to_dict() for k in self.by]}
        return results

    def to_frame(self) -> pl.DataFrame:
        """One row per position cell: the gap, its bracket, its gate and the critic bias."""
        import polars as pl

        bias = {cell.low: cell.estimate for cell in self.critic_bias.cells}
        rows = []
        for cell in self.gap.cells:
            row = _flat(cell.to_dict())
            row |= (
                {f"critic_bias_{n}": getattr(bias[cell.low], n) for n in ("value", "se")}
                if (cell.low in bias)
                else {}
            )
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)


def _finite(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _plain(value: Companion) -> Any:
    if isinstance(value, Estimate):
        return value.to_dict()
    if isinstance(value, float):
        return _finite(value)
    return value


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}_{inner}": v for inner, v in value.items() if inner in ("value", "se")}
        else:
            flat[name] = value
    return flat


Status = Literal["ok", "note", "warn", "fail"]


@dataclass(frozen=True, slots=True)
class Check:
    """One question put to a log before any estimate is believed.

    Attributes:
        id: short stable name.
        status: `ok`; `note` worth knowing; `warn` limits what follows; `fail` makes it meaningless.
        message: what was found, with its numbers.
        next: what to do about it, None where nothing is to be done.
    """

    id: str
    status: Status
    message: str
    next: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id, "status": self.status, "message": self.message, "next": self.next}


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a log holds and whether it can be believed.

    Attributes:
        source: what was read, in words.
        columns: canonical column -> where it comes from; unused: columns taken for nothing.
        quality: counts of everything set aside.
        summary: sizes and ranges by name; None where the log does not tell.
        checks: in order of weight.
    """

    source: str
    columns: Mapping[str, str]
    unused: tuple[str, ...]
    quality: DataQuality
    summary: Mapping[str, float | int | None]
    checks: tuple[Check, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "columns": dict(self.columns),
            "unused": list(self.unused),
            "summary": {name: _plain(value) for name, value in self.summary.items()},
            "checks": [check.to_dict() for check in self.checks],
        }
