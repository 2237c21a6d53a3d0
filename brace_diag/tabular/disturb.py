"""What goes wrong in logs: log-probs that are not the sampler's, and tokens that nobody sampled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from brace_diag.errors import InputError
from brace_diag.tabular.mdp import Bool, Float, Int

Kind = Literal["normal", "centred", "student_t", "constant"]

DEGREES_OF_FREEDOM = 3
"""Of `student_t`: heavy tails, and still a variance."""


@dataclass(frozen=True, slots=True, eq=False)
class RatioNoise:
    """An error of the logged log-probs of one policy: what a log sees as staleness.

    Attributes:
        size: standard deviation of the error per token; for `constant` its value, of either sign.
        kind: `normal`; `centred`, normal with mean -size²/2 in log w, so that E[w] stays 1;
            `student_t` with 3 degrees of freedom; `constant`.
        on: the column it falls on, `pi` or `mu`. Added to log pi, subtracted from log mu: either
            way it is added to log w.
        states: bool (n_states,), the states where it occurs; None for all.
    """

    size: float
    kind: Kind = "normal"
    on: Literal["pi", "mu"] = "pi"
    states: Bool | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("normal", "centred", "student_t", "constant"):
            raise InputError(f"kind of noise is {self.kind!r}")
        if self.on not in ("pi", "mu"):
            raise InputError(f"noise falls on {self.on!r}; it must be 'pi' or 'mu'")
        if not np.isfinite(self.size) or (self.size < 0 and self.kind != "constant"):
            raise InputError(f"size of noise is {self.size}; it must be finite and not negative")

    def draw(self, states: Int, rng: np.random.Generator) -> Float:
        """Error in log w of tokens sampled in `states`, (n_tokens,)."""
        n = len(states)
        if self.kind == "constant":
            error = np.full(n, self.size)
        elif self.kind == "student_t":
            unit = np.sqrt(DEGREES_OF_FREEDOM / (DEGREES_OF_FREEDOM - 2.0))
            error = self.size * rng.standard_t(DEGREES_OF_FREEDOM, n) / unit
        else:
            error = self.size * rng.standard_normal(n)
            if self.kind == "centred":
                error -= 0.5 * self.size**2
        return error if self.states is None else np.where(self.states[states], error, 0.0)


@dataclass(frozen=True, slots=True)
class ToolHoles:
    """Runs of tokens that the policy did not sample: tool answers between its own tokens.

    Attributes:
        rate: chance of a run before each policy token, and after the last one.
        mean_length: mean tokens of a run, at least 1 (geometric).
        poison: what stands in the float cells there, in turn; NaN means a null in Arrow readers.
    """

    rate: float = 0.05
    mean_length: float = 4.0
    poison: tuple[float, ...] = (float("nan"), 1e30, float("-inf"), 0.0, -9999.0)

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1 or not self.mean_length >= 1 or not self.poison:
            raise InputError("rate must lie in [0, 1], mean_length be at least 1, poison not empty")

    def draw(self, n: int, rng: np.random.Generator) -> Int:
        """Lengths of the runs at n places, most of them 0."""
        runs = rng.geometric(1.0 / self.mean_length, n)
        return np.where(rng.random(n) < self.rate, runs, 0).astype(np.int64)
