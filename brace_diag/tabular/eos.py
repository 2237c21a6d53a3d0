"""`EosMDP`: one state, a random length, and why binning by the realised horizon misleads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from brace_diag.errors import InputError
from brace_diag.tabular.mdp import Float, TokenMDP, token_mdp

CONTINUE, END_RIGHT, END_WRONG = 0, 1, 2
"""Tokens."""


@dataclass(frozen=True, slots=True)
class EosMDP:
    """Each token continues the response, or ends it right (R = 1) or wrong (R = 0).

    mu ends with probability `hazard_mu`, right in a share `right_mu` of the ends; pi likewise.
    Without a cap on the length every position looks the same: V^mu = right_mu, V^pi = right_pi,
    and b(t) = right_pi - right_mu for every t, given alive.

    Attributes:
        hazard_mu, hazard_pi: P(end) per token, in (0, 1).
        right_mu, right_pi: P(right | end), in (0, 1).
    """

    hazard_mu: float = 0.01
    hazard_pi: float = 0.012
    right_mu: float = 0.5
    right_pi: float = 0.48

    def __post_init__(self) -> None:
        for name in ("hazard_mu", "hazard_pi", "right_mu", "right_pi"):
            if not 0 < getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; it must lie between 0 and 1")

    @property
    def gap(self) -> float:
        """b(t) at every position, without a cap on the length."""
        return self.right_pi - self.right_mu

    def by_horizon(self, horizon: float | Float) -> Float:
        """What importance sampling reads in a bin of realised remaining horizon h.

        E[(W - 1) R | h tokens to go after this one] = right_mu (w_continue^h w_right - 1), since
        W = w_continue^h w_end. It is `gap` only on average over h: knowing when the
        response ended is knowing something about w.
        """
        on = (1.0 - self.hazard_pi) / (1.0 - self.hazard_mu)
        right = self.hazard_pi * self.right_pi / (self.hazard_mu * self.right_mu)
        return np.asarray(self.right_mu * (on ** np.asarray(horizon) * right - 1.0))

    def horizon_probability(self, horizon: int | Float) -> Float:
        """P(h tokens to go after this one | alive) under mu, without a cap on the length."""
        return np.asarray((1.0 - self.hazard_mu) ** np.asarray(horizon) * self.hazard_mu)

    def build(self, horizon: int, n_prompts: int = 1) -> TokenMDP:
        """The same with at most `horizon` tokens; a response cut there earns 0."""
        policies = [
            (1.0 - hazard, hazard * right, hazard * (1.0 - right))
            for hazard, right in (
                (self.hazard_mu, self.right_mu),
                (self.hazard_pi, self.right_pi),
            )
        ]
        # States: 0 alive, 1 ended right, 2 ended wrong; tokens in the last two are never sampled.
        mu, pi = (np.broadcast_to(np.array(p), (n_prompts, 3, 3)) for p in policies)
        return token_mdp(
            nxt=[[0, 1, 2]] * 3,
            mu=mu,
            pi=pi,
            terminal_reward=[0.0, 1.0, 0.0],
            x0=0,
            horizon=horizon,
            done=[False, True, True],
        )
