"""Which target a recursion computes: five targets, one recursion with different coefficients.

Every target of one rollout of length T is a window of affine maps applied to a tail,

    y_s = (f_s ∘ f_{s+1} ∘ … ∘ f_{j-1})(e_j),   j = min(s + window, T),
    f_l(y) = b_l + a_l y,   a_l = γ c_l,   b_l = (1 - ρ_l) V_l + ρ_l r_l + γ (ρ_l - c_l) V_{l+1},

with the last token's map held constant (a_{T-1} = 0), so that nothing after a rollout reaches it.
In value space no large terms cancel: with w = 1 and λ = 1 the critic drops out exactly.

| target | ρ_l, c_l                          | tail e_j                   | window |
|--------|-----------------------------------|----------------------------|--------|
| mc     | never read                        | G_j                        | 0      |
| gae    | 1, λ                              | never reached              | ∞      |
| vtrace | min(ρ̄, w_l), λ min(c̄, w_l)        | V_j                        | n      |
| capped | the same                          | V_j + Σ_{l>=j} γ^(l-j) ρ_l δ_l | k  |
| brace  | the same, but 1 at the last token | G_j                        | k      |
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import get_args

from brace_diag.errors import InputError
from brace_diag.settings import TargetName

TAIL_VALUE, TAIL_RETURN, TAIL_RESIDUALS = 0, 1, 2
"""Tails e_j: the critic V_j, the return G_j, or the critic plus the capped residuals."""

UNBOUNDED = 2**62
"""Window that stands for infinity; far beyond any length, and s + window stays in int64."""

MAX_LOG = math.log(2.0) * 1023
"""Above this log w the ratio is held: exp would leave float64."""


@dataclass(frozen=True, slots=True)
class Recursion:
    """Coefficients of one target; see the module's table.

    Attributes:
        weighted: whether log-probs are read (False: w = 1 everywhere).
        tail: one of TAIL_VALUE, TAIL_RETURN, TAIL_RESIDUALS.
        window: number of maps before the tail, `UNBOUNDED` for all of them.
        rho_bar, c_bar: caps of the residual weight and of the trace, above 0, may be inf.
        gamma: discount per policy token, in (0, 1].
        lam: trace decay λ, in [0, 1].
    """

    weighted: bool
    tail: int
    window: int
    rho_bar: float
    c_bar: float
    gamma: float
    lam: float

    def __post_init__(self) -> None:
        for name, cap in (("rho_bar", self.rho_bar), ("c_bar", self.c_bar)):
            if not cap > 0:
                raise InputError(f"{name} is {cap}; it must be above 0 (math.inf for no cap)")
        if not 0 < self.gamma <= 1:
            raise InputError(f"gamma is {self.gamma}; it must be above 0 and at most 1")
        if not 0 <= self.lam <= 1:
            raise InputError(f"lam is {self.lam}; it must lie between 0 and 1")

    @property
    def reads_values(self) -> bool:
        """Whether any target depends on the critic."""
        return not (self.window == 0 and self.tail == TAIL_RETURN)

    @property
    def reads_weights(self) -> bool:
        """Whether any target depends on the log-probs."""
        return self.weighted and self.reads_values

    @property
    def log_cap(self) -> float:
        """Hold for log w before exp: loose enough that both caps still bind exactly."""
        cap = max(self.rho_bar, self.c_bar)
        return min(math.log(cap) + 1.0, MAX_LOG) if math.isfinite(cap) else MAX_LOG

    @property
    def log_lam(self) -> float:
        """log λ; -inf for λ = 0."""
        return math.log(self.lam) if self.lam > 0 else -math.inf


def recursion(
    target: str,
    *,
    k: float = 100,
    n: float | None = None,
    rho_bar: float | None = None,
    c_bar: float | None = None,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> Recursion:
    """The recursion of a target by name; caps left at None take the target's own defaults.

    Raises: InputError for an unknown name or a parameter outside its range.
    """
    gamma, lam = _number("gamma", gamma), _number("lam", lam)
    if target == "mc":
        return Recursion(False, TAIL_RETURN, 0, math.inf, math.inf, gamma, 1.0)
    if target == "gae":
        return Recursion(False, TAIL_VALUE, UNBOUNDED, math.inf, math.inf, gamma, lam)
    if target == "vtrace":
        window = UNBOUNDED if n is None else _window("n", n, 1)
        rho, c = _caps(rho_bar, c_bar, 1.0, 1.0)
        return Recursion(True, TAIL_VALUE, window, rho, c, gamma, lam)
    if target in ("capped", "brace"):
        tail = TAIL_RETURN if target == "brace" else TAIL_RESIDUALS
        rho, c = _caps(rho_bar, c_bar, 1.2, 1.1)
        return Recursion(True, tail, _window("k", k, 0), rho, c, gamma, lam)
    names = ", ".join(get_args(TargetName))
    raise InputError(f"target is {target!r}; allowed: {names}")


def _caps(
    rho_bar: float | None, c_bar: float | None, default_rho: float, default_c: float
) -> tuple[float, float]:
    rho = default_rho if rho_bar is None else _number("rho_bar", rho_bar)
    return rho, default_c if c_bar is None else _number("c_bar", c_bar)


def _number(name: str, x: object) -> float:
    if isinstance(x, str | bytes) or not hasattr(x, "__float__"):
        raise InputError(f"{name} is {x!r}; it must be a number")
    return float(x)


def _window(name: str, value: float, lowest: int) -> int:
    x = _number(name, value)
    if x == math.inf:
        return UNBOUNDED
    if not (math.isfinite(x) and x == int(x) and x >= lowest):
        raise InputError(f"{name} is {value}; it must be an integer >= {lowest}, or math.inf")
    return min(int(x), UNBOUNDED)
