"""What trend measures: the same figures at every step or staleness, and whether they move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from brace_diag.errors import InputError
from brace_diag.quality import DataQuality
from brace_diag.results import Estimate, Gate
from brace_diag.settings import Baseline, By, GapSettings, StalenessKind

if TYPE_CHECKING:
    import polars as pl

SERIES: Mapping[str, str] = {
    "b_hat": "gap V^pi - V^mu at the first token",
    "g_pi": "critic's first value less E_pi[R]; above 0: too high for pi",
    "g_mu": "critic's first value less E_mu[R]; above 0: too high for mu",
    "reward_mu": "E_mu[R]",
    "reward_pi": "E_pi[R] = E_mu[R] + b",
    "critic_mean": "mean critic at the first token",
    "explained_variance": "of the returns, by the critic",
    "m": "mean capped log-weight of a token",
    "ess_rollout": "effective share of the rollouts under pi",
    "kept_rho_bar": "share of tokens that rho_bar leaves alone",
    "kept_c_bar": "share of tokens that c_bar leaves alone",
}
"""Figures by name, and what they are."""


KEYS: Mapping[str, str] = {"step": "steps", "staleness": "levels of staleness"}
"""What several of a key are called."""


@dataclass(frozen=True, slots=True)
class FigureSettings:
    """What the figures of `SERIES` are asked for.

    Attributes:
        gamma: discount per policy token, in (0, 1]; level: of the intervals, in (0, 1).
        baseline: as in `GapSettings`.
        c_bar, rho_bar: caps of m and of the kept shares.
    """

    gamma: float = 1.0
    level: float = 0.95
    baseline: Baseline = "auto"
    c_bar: float = 1.1
    rho_bar: float = 1.2

    def __post_init__(self) -> None:
        for name in ("c_bar", "rho_bar"):
            if not getattr(self, name) > 0.0:
                raise InputError(f"{name} is {getattr(self, name)}; it must be above 0, or inf")
        self.gap()

    def gap(self) -> GapSettings:
        """The same as settings of the value gap."""
        return GapSettings(gamma=self.gamma, level=self.level, baseline=self.baseline)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TrendSettings(FigureSettings):
    """What `trend` is asked for.

    Attributes:
        by: what the figures run along.
        staleness: which token's version makes the key `staleness`.
        margin: the gap that is harmless, in units of each key's s_A.
    """

    by: By = "step"
    staleness: StalenessKind = "first"
    margin: float = 0.1

    def __post_init__(self) -> None:
        # A class with slots is made anew, so that a bare super() would not find it.
        FigureSettings.__post_init__(self)
        if self.by not in ("step", "staleness"):
            raise InputError(f"by is {self.by!r}; allowed: 'step', 'staleness'")
        if self.staleness not in ("first", "last"):
            raise InputError(f"staleness is {self.staleness!r}; allowed: 'first', 'last'")
        if not self.margin > 0.0:
            raise InputError(f"margin is {self.margin}; it must be above 0, in units of s_A")


@dataclass(frozen=True, slots=True)
class TrendPoint:
    """The figures of one step or staleness.

    Attributes:
        key: the step, or the staleness in versions.
        figures: by the names of `SERIES`.
        margin: what |b| is held against, in the unit of the return; None without an s_A.
        beyond: whether |b| lies beyond it with 95 % confidence, one-sided; None where unknown.
        gate, within_var_log_product: trust in b and the variance it rests on.
    """

    key: int
    figures: Mapping[str, Estimate]
    margin: float | None
    beyond: bool | None
    gate: Gate
    within_var_log_product: float | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key,
            **{name: own.to_dict() for name, own in self.figures.items()},
            "margin": self.margin,
            "beyond": self.beyond,
            "gate": self.gate,
            "within_var_log_product": self.within_var_log_product,
        }


@dataclass(frozen=True, slots=True)
class TrendTest:
    """Whether a figure moves along the key.

    Attributes:
        slope: least-squares change per unit of the key, each key counting by its rollouts, with the
            interval that inverts the test.
        p_value: of no change, two-sided; None where there is no test.
        lag: of the HAC covariance, in keys.
        n_keys: keys with the figure.
    """

    slope: Estimate
    p_value: float | None
    lag: int
    n_keys: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "slope": self.slope.to_dict(),
            "p_value": self.p_value,
            "lag": self.lag,
            "n_keys": self.n_keys,
        }


@dataclass(frozen=True, slots=True)
class Trend:
    """How a run's figures move over steps or staleness.

    Attributes:
        source, settings, quality: what was read, what was asked for, what the log held.
        points: by key, in order.
        tests: a trend test of every figure, by name.
        first_beyond: first key at which |b| lies beyond the margin, None where there is none.
        n_beyond, n_judged: keys beyond the margin, and keys of which that can be told.
        invalid: why no figure of the gap can be believed, or None.
        notes: sentences that a reader must see.
    """

    source: str
    settings: TrendSettings
    quality: DataQuality
    points: tuple[TrendPoint, ...]
    tests: Mapping[str, TrendTest]
    first_beyond: int | None
    n_beyond: int
    n_judged: int
    invalid: str | None
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The `results` block of the JSON document."""
        return {
            "key": self.settings.by,
            "points": [point.to_dict() for point in self.points],
            "tests": {name: test.to_dict() for name, test in self.tests.items()},
            "first_beyond": self.first_beyond,
            "n_beyond": self.n_beyond,
            "n_judged": self.n_judged,
            "invalid": self.invalid,
        }

    def to_frame(self) -> pl.DataFrame:
        """One row per key: every figure with its standard error, margin and gate."""
        import polars as pl

        rows = []
        for point in self.points:
            row: dict[str, Any] = {self.settings.by: point.key}
            for name, own in point.figures.items():
                row |= {name: own.value, f"{name}_se": own.se}
            row |= {
                "margin": point.margin,
                "beyond": point.beyond,
                "gate": point.gate,
                "within_var_log_product": point.within_var_log_product,
                "n_rollouts": point.figures["reward_mu"].n_rollouts,
            }
            rows.append(row)
        return pl.DataFrame(rows, infer_schema_length=None)
