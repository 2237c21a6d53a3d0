"""The figures of one set of rollouts from one pass: gap, critic and weights side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from brace_diag.engines.critic_fit import frame_of
from brace_diag.engines.reading import Reading
from brace_diag.estimators.critic_fit import whole_figures
from brace_diag.estimators.critic_state import CriticState, critic_info
from brace_diag.estimators.gap_state import GapState
from brace_diag.estimators.importance import estimate_figures, estimate_products
from brace_diag.estimators.importance_notes import marked, ratio_check, unbelieved
from brace_diag.estimators.importance_state import ImportanceState
from brace_diag.estimators.intervals import IntervalMaker
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.estimators.value_gap import GapEstimates, distrusted, estimate_gap
from brace_diag.results import Estimate
from brace_diag.results_importance import ImportanceSettings, RatioCheck, WeightFigures
from brace_diag.results_trend import FigureSettings
from brace_diag.rollouts import Rollouts

WANTS = ("mu_logprobs", "pi_logprobs", "values")
"""Columns that are read where the log has them."""


@dataclass(slots=True)
class SetState:
    """Sums for every figure of a set of rollouts.

    Attributes:
        gap: at the first token, or at every position.
        weights: None where the log lacks one policy's log-probs; critic: None without values.
    """

    gap: GapState
    weights: ImportanceState | None
    critic: CriticState | None

    def update(
        self,
        batch: Rollouts,
        info: RolloutInfo,
        *,
        subset: npt.NDArray[np.int64] | None = None,
        threads: int = 1,
    ) -> None:
        """Add a batch, or the rollouts `subset` (ascending) of it; info: see `info_of`."""
        self.gap.update(batch, info, subset=subset, threads=threads)
        if self.weights is not None:
            self.weights.update(batch, info, subset=subset, threads=threads)
        if self.critic is not None:
            self.critic.update(batch, info, subset=subset, threads=threads)  # type: ignore[arg-type]


def maker(
    reading: Reading, settings: FigureSettings, *, positions: bool = False
) -> Callable[[], SetState]:
    """What makes empty states for what the log has; the range of returns is read once for all."""
    frame = frame_of(reading, settings.gamma) if reading.has_values else None

    def make() -> SetState:
        return SetState(
            GapState("position", settings.gamma, all_starts=positions, spread=False),
            ImportanceState(settings.c_bar, settings.rho_bar, full=False)
            if reading.has_w
            else None,
            None if frame is None else CriticState(frame, 0, False, False, False),
        )

    return make


def info_of(reading: Reading, batch: Rollouts, info: RolloutInfo) -> RolloutInfo:
    """What every state of a `SetState` has to know of a batch, computed once."""
    return critic_info(batch, info, ()) if reading.has_values else info


@dataclass(frozen=True, slots=True)
class SetFigures:
    """The figures of a closed `SetState`.

    Attributes:
        gap: all estimates of the gap.
        figures: by the names of `SERIES`.
    """

    gap: GapEstimates
    figures: dict[str, Estimate]


def close(state: SetState, reading: Reading, settings: FigureSettings) -> SetFigures:
    """Every figure; one that the log's columns cannot tell is null and says which is missing."""
    gap = estimate_gap(
        state.gap, settings.gap(), has_values=reading.has_values, allow_group=reading.may_group
    )
    blank = replace(gap.batch.b_hat, value=None, se=None, ci_low=None, ci_high=None, reliable=False)
    fit = replace(blank, method="over tokens", reason=NO_VALUES)
    if state.critic is not None:
        whole = whole_figures(IntervalMaker(settings.level), state.critic)
        fit = whole.fit(0, "explained_variance")
    figures = _gap_figures(gap, reading) | {"explained_variance": fit}
    if state.weights is None:
        unknown = replace(blank, method="raw weights", reason=_no_weights(reading))
        return SetFigures(gap, figures | dict.fromkeys(WEIGHTS, unknown))
    asked = ImportanceSettings(settings.c_bar, settings.rho_bar, level=settings.level)
    return SetFigures(gap, figures | _weight_figures(estimate_figures(state.weights, asked)))


def believed(
    own: SetFigures, reading: Reading, why: str | None, ratio: RatioCheck | None
) -> SetFigures:
    """The same numbers, those marked that a fault of the whole log takes the trust from.

    Args:
        why: what is wrong with the log in a word or two, None where it is sound.
        ratio: whether w is an importance ratio; None where there is no w.
    """
    gap = own.gap if why is None else distrusted(own.gap, why)
    figures = own.figures | _gap_figures(gap, reading)
    if ratio is not None:
        lost = unbelieved(ratio.verdict)
        for name, theirs in WEIGHTS.items():
            if theirs in lost:
                figures[name] = marked(figures[name], ratio.verdict.replace("_", " "))
    return SetFigures(gap, figures)


WEIGHTS = {
    "m": "m",
    "ess_rollout": "ess_rollout",
    "kept_rho_bar": "clip_rho_bar",
    "kept_c_bar": "clip_c_bar",
}
"""Figures of `SERIES` that are of the weights, and those of `WeightFigures` that they are made of;
`kept_` is one less `clip_`."""
NO_VALUES = "the log has no critic values"


def _no_weights(reading: Reading) -> str:
    missing = "pi_logprobs" if "mu_logprobs" in reading.columns else "mu_logprobs"
    return f"the log has no {missing}"


def _gap_figures(gap: GapEstimates, reading: Reading) -> dict[str, Estimate]:
    batch = gap.batch
    found = {
        "b_hat": batch.b_hat,
        "g_pi": batch.g_pi_signed,
        "g_mu": batch.g_mu_signed,
        "reward_mu": batch.reward_mu,
        "reward_pi": batch.reward_pi,
        "critic_mean": batch.critic_mean,
    }
    if not reading.has_w:
        for name in ("b_hat", "g_pi", "reward_pi"):
            found[name] = replace(found[name], reason=_no_weights(reading))
    return found


def _weight_figures(own: WeightFigures) -> dict[str, Estimate]:
    return {
        name: kept(getattr(own, theirs)) if name.startswith("kept_") else getattr(own, theirs)
        for name, theirs in WEIGHTS.items()
    }


def ratio_of(
    state: ImportanceState | None, reading: Reading, settings: FigureSettings
) -> RatioCheck | None:
    """Whether w of a closed state is an importance ratio, None without one."""
    if state is None:
        return None
    asked = ImportanceSettings(settings.c_bar, settings.rho_bar, level=settings.level)
    return ratio_check(estimate_products(state, asked), reading.signs)


def kept(clipped: Estimate) -> Estimate:
    """1 - x, with its interval."""
    if clipped.value is None:
        return clipped
    return replace(
        clipped,
        value=1.0 - clipped.value,
        ci_low=None if clipped.ci_high is None else 1.0 - clipped.ci_high,
        ci_high=None if clipped.ci_low is None else 1.0 - clipped.ci_low,
    )
