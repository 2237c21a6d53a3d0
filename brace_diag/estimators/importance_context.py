"""What every estimate of one state of importance products shares."""

from __future__ import annotations

from dataclasses import dataclass

from brace_diag.estimators import importance_estimates as ie
from brace_diag.estimators import importance_kernels as k
from brace_diag.estimators.importance_state import ImportanceState
from brace_diag.estimators.intervals import IntervalMaker
from brace_diag.results import Estimate
from brace_diag.results_importance import ImportanceSettings
from brace_diag.sums import Jackknife

# What rests on the logarithm of w, and so does not exist where a weight is 0.
OF_LOGS = frozenset(
    {
        "m", "sigma", "sigma_hac", "tau_prompt", "usable_horizon", "kl_k1", "kl_k3",
        "mean_abs_log_w", *(f"{n}_uncapped" for n in ("m", "sigma", "sigma_hac", "tau_prompt",
        "usable_horizon")),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Context:
    """What every estimate of one state shares."""

    maker: IntervalMaker
    own: ie.Figures
    settings: ImportanceSettings
    method: str
    n_zero: int
    overflow: bool

    def missing(self, name: str) -> str | None:
        if name in OF_LOGS and self.n_zero:
            return f"pi cannot draw {self.n_zero} of the sampled tokens: their log w is -inf"
        if name == "chi2_token" and self.overflow:
            return "the squared weights overflow float64"
        return None

    def over(
        self, jack: Jackknife, j: int, n_tokens: int, method: str, missing: str | None = None
    ) -> Estimate:
        """An estimate over some of the tokens."""
        return self.maker.estimate(
            jack, j, n_tokens=n_tokens, n_rollouts=self.own.n_rollouts, method=method,
            missing=missing,
        )  # fmt: skip

    def at(self, name: str, method: str | None = None) -> Estimate:
        """The estimate of one of `importance_estimates.NAMES`."""
        return self.maker.estimate(
            self.own.jack,
            ie.NAMES.index(name),
            n_tokens=self.own.n_tokens,
            n_rollouts=self.own.n_rollouts,
            method=method or self.method,
            missing=self.missing(name),
        )


def context_of(state: ImportanceState, settings: ImportanceSettings) -> Context:
    return Context(
        IntervalMaker(settings.level),
        ie.figures(state, settings.log_discount),
        settings,
        f"c_bar={settings.c_bar:g}",
        round(float(state.sums.array[:, 0, k.N_ZERO].sum())),
        state.highest > k.MAX_SQUARED,
    )
