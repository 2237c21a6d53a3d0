"""The audit's answer: a verdict, every check behind it, and what to do next."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from brace_diag.quality import DataQuality
from brace_diag.results import DirectGap, Estimate, Gate, Status
from brace_diag.results_sweep import Recommendation

if TYPE_CHECKING:
    import polars as pl

    from brace_diag.settings import AuditSettings

Verdict = Literal[
    "invalid", "no_staleness", "needs_probe", "negligible", "needs_correction", "inconclusive"
]
"""`invalid`: the log cannot be judged as it is. `no_staleness`: pi equals mu on every token, so
nothing was tested. `needs_probe`: logged rollouts cannot tell, fresh ones from pi can.
`negligible`: the gap lies within the margin. `needs_correction`: it lies beyond it.
`inconclusive`: more of the same rollouts would tell."""

VERDICTS: tuple[Verdict, ...] = (
    "invalid",
    "no_staleness",
    "needs_probe",
    "negligible",
    "needs_correction",
    "inconclusive",
)
SENTENCES: dict[Verdict, str] = {
    "negligible": "The critic needs no correction",
    "needs_correction": "The critic needs correction",
    "needs_probe": "This log cannot tell; fresh rollouts from pi can",
    "inconclusive": "Not decided yet; more rollouts like these would tell",
    "no_staleness": "Nothing was tested",
    "invalid": "This log cannot be judged as it is",
}
"""What a verdict means, in a sentence."""
CANNOT_JUDGE: frozenset[Verdict] = frozenset(
    {"invalid", "no_staleness", "needs_probe", "inconclusive"}
)


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """One question that the audit asked, with all that its answer rests on.

    Attributes:
        id: short stable name.
        status: `ok`; `note` worth knowing; `warn` limits what follows; `fail` decides the verdict.
        value: what was found; None where the log does not tell.
        ci: its interval, None where there is none.
        threshold: what the value was held against, None where it is no single number.
        source: where the threshold comes from.
        message: what was found, in words.
        next: what to do about it, None where nothing is to be done.
    """

    id: str
    status: Status
    message: str
    next: str | None = None
    value: float | int | str | None = None
    ci: tuple[float, float] | None = None
    threshold: float | None = None
    source: str | None = None

    def to_dict(self) -> dict[str, Any]:
        value = self.value
        if isinstance(value, float) and not math.isfinite(value):
            value = None
        return {
            "id": self.id,
            "status": self.status,
            "value": value,
            "ci": None if self.ci is None else list(self.ci),
            "threshold": self.threshold,
            "source": self.source,
            "message": self.message,
            "next": self.next,
        }


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was decided of one set of rollouts: the whole log, or one step.

    Attributes:
        verdict: see `Verdict`.
        reason: why, in a sentence with its numbers.
        next: what to do, in a sentence.
        b_hat: gap at the first token, wdr.
        margin: .1 s_A, what the gap was held against; None where s_A does not exist.
        prompt_mean_square: E_p[b_p²] at the first token, within-prompt U-statistic.
        gate, within_var_log_product: trust in b_hat and the variance it rests on.
        rollouts_needed: rollouts like these that would decide, None where that cannot be said.
    """

    verdict: Verdict
    reason: str
    next: str | None
    b_hat: Estimate
    margin: float | None
    prompt_mean_square: Estimate
    gate: Gate
    within_var_log_product: float | None
    rollouts_needed: int | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "next": self.next,
            "b_hat": self.b_hat.to_dict(),
            "margin": self.margin,
            "prompt_mean_square": self.prompt_mean_square.to_dict(),
            "gate": self.gate,
            "within_var_log_product": self.within_var_log_product,
            "rollouts_needed": self.rollouts_needed,
        }


@dataclass(frozen=True, slots=True)
class Audit:
    """Whether a run's critic needs correction.

    Attributes:
        source: what was read, in words.
        settings, quality: what was asked for and what the log held.
        overall: the judgement of the whole log.
        checks: every check, in the order in which the rule asks them.
        probe_rollouts: fresh rollouts from pi that resolve the margin.
        by: the judgement of every step, by step; empty unless asked for.
        recommendation: target settings that would recover the gap, with needs_correction and a
            critic in the log; else None.
        direct: the gap from returns alone, where rollouts of pi are at hand.
        notes: sentences that a reader must see.
    """

    source: str
    settings: AuditSettings
    quality: DataQuality
    overall: Judgement
    checks: tuple[AuditCheck, ...]
    probe_rollouts: int | None
    by: Mapping[int, Judgement]
    recommendation: Recommendation | None
    direct: tuple[DirectGap, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """The verdict on the whole log."""
        return self.overall.verdict

    @property
    def sentence(self) -> str:
        """What the verdict means; an undecided one that more data would not decide says so."""
        if self.verdict == "inconclusive" and self.overall.rollouts_needed is None:
            return "Not decided, and more rollouts like these would not decide it"
        return SENTENCES[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """The `results` block of the JSON document."""
        results: dict[str, Any] = {
            **self.overall.to_dict(),
            "probe_rollouts": self.probe_rollouts,
            "checks": [check.to_dict() for check in self.checks],
            "direct": [one.to_dict() for one in self.direct],
            "recommendation": None
            if self.recommendation is None
            else self.recommendation.to_dict(),
        }
        if self.settings.by is not None:
            entries = [{"key": key} | own.to_dict() for key, own in self.by.items()]
            results["by"] = {"key": self.settings.by, "entries": entries}
        return results

    def to_frame(self) -> pl.DataFrame:
        """One row per check."""
        import polars as pl

        rows = [check.to_dict() for check in self.checks]
        for row in rows:
            row["value"] = None if row["value"] is None else str(row["value"])
            row["ci_low"], row["ci_high"] = row.pop("ci") or (None, None)
        return pl.DataFrame(rows, infer_schema_length=None)
