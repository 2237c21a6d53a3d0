"""Everything that an audit judges by, from one pass over a run."""

from __future__ import annotations

import os
from dataclasses import dataclass

from brace_diag.engines.critic_fit import frame_of
from brace_diag.engines.direct import (
    RowReturns,
    collector,
    direct_evidence,
    fresh_returns,
)
from brace_diag.engines.keyed import KeyedStates, keyed
from brace_diag.engines.reading import Reading
from brace_diag.engines.runs import Progress, RunLike
from brace_diag.errors import SchemaError
from brace_diag.estimators import gap_estimates as ge
from brace_diag.estimators.critic_fit import whole_figures
from brace_diag.estimators.critic_state import CriticState, critic_info
from brace_diag.estimators.gap_state import GapState
from brace_diag.estimators.importance import ImportanceEstimates, estimate_products
from brace_diag.estimators.importance_notes import ratio_check
from brace_diag.estimators.importance_state import ImportanceState
from brace_diag.estimators.inspection import InspectionSums
from brace_diag.estimators.inspection_checks import checks
from brace_diag.estimators.intervals import IntervalMaker
from brace_diag.estimators.log_checks import LogSigns
from brace_diag.estimators.loss_mask import LossMaskCounts
from brace_diag.estimators.value_gap import GapEstimates, estimate_gap
from brace_diag.quality import DataQuality
from brace_diag.results import Check, DirectGap, Estimate
from brace_diag.results_importance import ImportanceSettings, RatioCheck
from brace_diag.settings import AuditSettings, GapSettings


@dataclass(frozen=True, slots=True)
class GapEvidence:
    """What is known of the gap at the first token of a set of rollouts.

    Attributes:
        gap: the estimates at position 0.
        prompt_mean_square: E_p[b_p²] by the within-prompt U-statistic, null without siblings.
    """

    gap: GapEstimates
    prompt_mean_square: Estimate


@dataclass(frozen=True, slots=True)
class Evidence:
    """What one pass over a run says, before anything is judged.

    Attributes:
        source, columns: what was read, and the canonical columns that it has.
        quality, signs: counts, and fitness of the log.
        checks: those of `inspect`.
        n_prompts: distinct prompts with a policy token.
        loss: what a loss mask leaves out.
        whole: the gap of all rollouts; None without both policies or without a policy token.
        weights, ratio: the importance products, and whether w is a ratio; None as `whole` is.
        explained_variance: of the critic over tokens, None without values.
        by: the gap by step, in order; empty unless asked for.
        direct: the gap from returns alone, fresh rollouts first.
    """

    source: str
    columns: frozenset[str]
    quality: DataQuality
    signs: LogSigns
    checks: tuple[Check, ...]
    n_prompts: int
    loss: LossMaskCounts
    whole: GapEvidence | None
    weights: ImportanceEstimates | None
    ratio: RatioCheck | None
    explained_variance: Estimate | None
    by: dict[int, GapEvidence]
    direct: tuple[DirectGap, ...]


class _Pass:
    """The states of one pass, and what becomes of them."""

    def __init__(
        self, reading: Reading, settings: AuditSettings, threads: int, fresh: RowReturns | None
    ) -> None:
        self.reading, self.settings, self.threads = reading, settings, threads
        self.fresh = fresh
        self.rows = collector(reading, fresh, settings.gamma)
        self.asked = settings.gap()
        self.inspection = InspectionSums()
        self.loss = LossMaskCounts()
        self.importance_settings = ImportanceSettings(level=settings.level)
        self.gap: GapState | None = None
        self.weights: ImportanceState | None = None
        self.critic: CriticState | None = None
        self.by: KeyedStates[GapState, tuple[int, GapEvidence]] | None = None
        if reading.has_w:
            self.gap = self._gap_state()
            self.weights = ImportanceState(
                self.importance_settings.c_bar, self.importance_settings.rho_bar
            )
            keys = reading.keys(settings.by)
            self.by = keyed(keys, self._gap_state, lambda key, state: (key, self._close(state)))
        if reading.has_values:
            self.critic = CriticState(frame_of(reading, settings.gamma), 0, False, False, False)

    def _gap_state(self) -> GapState:
        return GapState("position", self.settings.gamma, all_starts=False, spread=True)

    def _close(self, state: GapState) -> GapEvidence:
        return gap_evidence(state, self.asked, self.reading.has_values, self.reading.may_group)

    def run(self, progress: Progress | None) -> None:
        for batch, info in self.reading.batches(progress):
            self.inspection.update(batch, info.counted)
            self.loss.update(batch, info.counted)
            if self.rows is not None:
                self.rows.add(batch, info, self.threads)
            if self.gap is not None and self.weights is not None:
                self.gap.update(batch, info, threads=self.threads)
                self.weights.update(batch, info, threads=self.threads)
            if self.by is not None:
                self.by.update(batch, info, self.threads)
            if self.critic is not None:
                self.critic.update(batch, critic_info(batch, info, ()), threads=self.threads)

    def _direct(self, whole: GapEvidence | None) -> tuple[DirectGap, ...]:
        if self.rows is None:
            return ()
        level = self.settings.level
        wdr = _unknown(level) if whole is None else whole.gap.batch.b_hat
        return direct_evidence(self.rows, self.fresh, wdr, level)

    def evidence(self) -> Evidence:
        reading = self.reading
        self.inspection.quality = reading.quality
        some = reading.quality.n_tokens > 0
        whole = self._close(self.gap) if self.gap is not None and some else None
        weights = None
        if self.weights is not None and some:
            weights = estimate_products(self.weights, self.importance_settings)
        explained = None
        if self.critic is not None and some:
            figures = whole_figures(IntervalMaker(self.settings.level), self.critic)
            explained = figures.fit(0, "explained_variance")
        return Evidence(
            source=reading.run.source,
            columns=frozenset(reading.run.columns),
            quality=reading.quality,
            signs=reading.signs,
            checks=checks(self.inspection, reading.signs.values if reading.has_values else None),
            n_prompts=len(self.inspection.prompts),
            loss=self.loss,
            whole=whole,
            weights=weights,
            ratio=None if weights is None else ratio_check(weights, reading.signs),
            explained_variance=explained,
            by={} if self.by is None else dict(self.by.results()),
            direct=self._direct(whole),
        )


def _unknown(level: float) -> Estimate:
    """A gap by weights that is not there."""
    reason = "the log does not tell the weights"
    return Estimate(None, None, None, None, level, 0, 0, 0, "wdr", False, reason)


def gap_evidence(
    state: GapState, settings: GapSettings, has_values: bool, allow_group: bool
) -> GapEvidence:
    """Estimates of a finished state that kept the spread over prompts."""
    own = estimate_gap(state, settings, has_values=has_values, allow_group=allow_group)
    shift = settings.group_shift if own.baseline == "group" else 0.0
    jack = ge.prompt_second_moment(state, shift)
    b = own.batch.b_hat
    method = "E_p[b_p²], within-prompt U-statistic"
    if jack is None:
        reason = "no prompt has two rollouts: the spread over prompts does not exist"
        return GapEvidence(
            own, Estimate(None, None, None, None, settings.level, 0, 0, 0, method, False, reason)
        )
    second = IntervalMaker(settings.level).estimate(
        jack, 0, n_tokens=b.n_tokens, n_rollouts=b.n_rollouts, method=method, gate=own.gate,
        v=own.within_variance or 0.0,
    )  # fmt: skip
    return GapEvidence(own, second)


def gather(
    run: RunLike,
    settings: AuditSettings,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    fresh: RunLike | None = None,
) -> Evidence:
    """Read a run once and close every state.

    A log without one policy's log-probs, or without a policy token, is no error here: the audit
    says what it cannot tell.

    Raises: SchemaError where no return is logged, or `by` asks for a step that is not logged.
    """
    wants = ("mu_logprobs", "pi_logprobs", "values", "loss_mask")
    reading = Reading.open(run, "an audit", (), wants)
    n_threads = threads or os.cpu_count() or 1
    own = _Pass(reading, settings, n_threads, fresh_returns(fresh, settings.gamma, n_threads))
    try:
        own.run(progress)
    except SchemaError:
        if reading.quality.n_tokens or not reading.quality.n_rows:
            raise
    return own.evidence()
