"""What the figure by step or by staleness draws, as arrays: pure functions of the result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from brace_diag.errors import InputError
from brace_diag.plots.gap_data import GATE_ORDER, WIDE, Array, Mask, margin_of, number, padded
from brace_diag.results import Estimate, Gate, ValueGap


@dataclass(frozen=True, slots=True)
class Series:
    """One figure over the keys: value and interval, (n_keys,), NaN where it does not exist."""

    value: Array
    low: Array
    high: Array

    @classmethod
    def of(cls, estimates: Iterable[Estimate]) -> Series:
        rows = [[number(e.value), number(e.ci_low), number(e.ci_high)] for e in estimates]
        table = np.array(rows, np.float64).reshape(-1, 3)
        return cls(table[:, 0], table[:, 1], table[:, 2])

    @property
    def known(self) -> Mask:
        """Keys with a value, (n_keys,)."""
        return np.isfinite(self.value)


@dataclass(frozen=True, slots=True)
class KeyedData:
    """Arrays over the keys, in their order.

    Attributes:
        by: step or staleness.
        level: level of the intervals, each for its key alone.
        key: (n_keys,) integers as float64.
        b: gap at the first token, in units of the return.
        reward_mu, reward_pi, critic_mean: E_mu[R], E_pi[R] and the mean critic there.
        gates: trust in b at each key.
        margin: .1 s_A of the whole log, None where s_A does not exist.
        reason: why no key has an estimate of b; empty where one has.
    """

    by: str
    level: float
    key: Array
    b: Series
    reward_mu: Series
    reward_pi: Series
    critic_mean: Series
    gates: tuple[Gate, ...]
    margin: float | None
    reason: str

    @property
    def gates_met(self) -> tuple[Gate, ...]:
        """The gates that occur, in order of trust."""
        return tuple(g for g in GATE_ORDER if g in self.gates)

    def at_gate(self, gate: Gate) -> Mask:
        """Keys at one gate, (n_keys,)."""
        return np.array([g == gate for g in self.gates], np.bool_)

    @property
    def n_apart(self) -> int:
        """Keys whose interval for b leaves out 0."""
        return int(((self.b.low > 0.0) | (self.b.high < 0.0)).sum())


def keyed_data(result: ValueGap) -> KeyedData:
    """The arrays of the figure by key.

    Raises:
        InputError: the result was not asked for by a key.
    """
    if result.settings.by is None:
        raise InputError(
            "the result has no estimates by step or staleness; ask for them: "
            'value_gap(run, by="step")'
        )
    batches = [entry.batch for entry in result.by]
    return KeyedData(
        by=result.settings.by,
        level=result.settings.level,
        key=np.array([entry.key for entry in result.by], np.float64),
        b=Series.of(b.b_hat for b in batches),
        reward_mu=Series.of(b.reward_mu for b in batches),
        reward_pi=Series.of(b.reward_pi for b in batches),
        critic_mean=Series.of(b.critic_mean for b in batches),
        gates=tuple(entry.gate for entry in result.by),
        margin=margin_of(result.batch.return_sd),
        reason=why_no_gap(result.settings.by, [b.b_hat for b in batches]),
    )


def why_no_gap(by: str, gaps: list[Estimate]) -> str:
    """Why no key has an estimate of b; empty where one has."""
    if not gaps:
        return f"The log tells no {by} for any rollout"
    if any(gap.value is not None for gap in gaps):
        return ""
    return f"No estimate at any {by}: {gaps[0].reason or 'none could be made'}"


def b_limits(data: KeyedData) -> tuple[float, float]:
    """Frame of the gaps: 0 and all intervals, but those more than `WIDE` times the median."""
    if not data.b.known.any():
        reach = 1.5 * (data.margin or 1.0)
        return -reach, reach
    bottom, top = _range([data.b])
    rug = not bool(data.b.known.all())
    return padded(min(bottom, 0.0), max(top, 0.0), data.margin, rug=rug)


def reward_limits(data: KeyedData) -> tuple[float, float]:
    """Frame of the returns and the critic, by the same rule, without 0."""
    series = [s for s in (data.reward_mu, data.reward_pi, data.critic_mean) if s.known.any()]
    if not series:
        return 0.0, 1.0
    bottom, top = _range(series)
    room = 0.06 * (top - bottom) or 0.5
    return bottom - room, top + room


def _range(series: list[Series]) -> tuple[float, float]:
    ends = []
    for s in series:
        low, high = np.fmin(s.value, s.low), np.fmax(s.value, s.high)
        width = (high - low)[s.known]
        inside = width <= WIDE * np.median(width)
        ends += [float(low[s.known][inside].min()), float(high[s.known][inside].max())]
    return min(ends), max(ends)
