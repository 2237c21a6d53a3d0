"""`LatentFamily`: token MDPs with a hidden progress, staleness of a chosen size and direction.

The latent state is (mode, z). In the routine mode text flows: one token is likely, none changes z,
one opens a fork. In the fork mode tokens move the progress z by -1, 0 or +1 and stay in the fork or
return to routine. The reward is 1 where z ends above half its range. mu = softmax(L) and
pi = softmax(L + η s_p D): L and D differ from prompt to prompt, η is set so that E_mu|log w| has
the size asked for. D = a up + sqrt(1 - a²) noise, with `up` +1 on tokens that raise z and -1 on
those that lower it: a = 1 is a policy that moves where the value is, a = 0 one that wanders.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from brace_diag.errors import InputError
from brace_diag.tabular.exact import occupancy, policy_value
from brace_diag.tabular.mdp import Bool, Float, Int, TokenMDP, token_mdp

ROUTINE, FORK, DONE = 0, 1, 2
"""Modes; state index = mode * n_levels + z."""

N_TOKENS = 6
OPEN_FORK = 4
"""The routine token that leads into the fork mode."""

EOS = 6
"""The token that ends a response, in families of random length."""

FORK_STEP = np.array([1, -1, 0, 1, -1, 0])
"""Change of z by each token of the fork mode; the last three return to routine."""

ROUTINE_LOGITS = np.array([3.2, 0.0, -0.5, -1.0, 0.5, -1.0])
"""Before spread: .83 for the likely token, .06 for the one that opens a fork."""

MAX_TILT = 64.0
"""Beyond this the smaller probabilities leave float64."""

BISECTIONS = 50
"""Halvings of the interval that holds the size of the drift: to float64 rounding."""

SHARED_SPREAD, PROMPT_SPREAD, SCALE_SPREAD = 0.55, 0.3, 0.4
"""Standard deviations: of logits that all prompts share, of each prompt's own, of log s_p."""


@dataclass(frozen=True, slots=True)
class LatentFamily:
    """Parameters of a family of token MDPs; `build` draws one.

    Attributes:
        n_prompts: prompts in the pool.
        horizon: length of every response, or the greatest length with a `hazard`.
        drift: E_mu|log w| per token, at least 0; 0 makes pi = mu.
        alignment: a in [0, 1], how far the drift points where the value is.
        neutral: drift only among tokens that lead to the same state, each set keeping its
            probability: w varies and the gap is exactly 0 in every state. Excludes an alignment.
        n_levels: values of z, at least 2; None for about sqrt(horizon), at least 8. A walk of
            that many tokens then forgets where it began only towards its end, so V differs from
            prompt to prompt and b fades along the response.
        hazard: probability of EOS at each token in the middle of the range of z; 0 for a fixed
            length.
        hazard_slope: log-odds of EOS rise by this much over the range of z, so that length and
            reward go together.
        gamma: discount per token.
        critic_offset, critic_noise, critic_prompt_noise: the logged critic is V^mu + offset +
            N(0, noise²) per (prompt, state) + N(0, prompt_noise²) per prompt.
    """

    n_prompts: int = 64
    horizon: int = 128
    drift: float = 0.02
    alignment: float = 0.3
    neutral: bool = False
    n_levels: int | None = None
    hazard: float = 0.0
    hazard_slope: float = 1.0
    gamma: float = 1.0
    critic_offset: float = 0.03
    critic_noise: float = 0.08
    critic_prompt_noise: float = 0.04

    def __post_init__(self) -> None:
        if self.n_prompts < 1 or self.levels < 2:
            raise InputError("n_prompts must be at least 1 and n_levels at least 2")
        if not self.drift >= 0:
            raise InputError(f"drift is {self.drift}; it must be at least 0")
        if not 0 <= self.alignment <= 1 or (self.neutral and self.alignment):
            raise InputError("alignment must lie between 0 and 1, and be 0 with neutral=True")
        if not 0 <= self.hazard < 1:
            raise InputError(f"hazard is {self.hazard}; it must be at least 0 and below 1")

    @property
    def levels(self) -> int:
        """Values of z."""
        if self.n_levels is not None:
            return self.n_levels
        return max(8, 2 * math.ceil(math.sqrt(self.horizon) / 2))

    def build(self, rng: np.random.Generator) -> TokenMDP:
        """Draw the family's policies, prompts and critic: one `TokenMDP` with a critic."""
        return self.build_at([self.drift], rng)[0]

    def build_at(self, drifts: list[float], rng: np.random.Generator) -> list[TokenMDP]:
        """One MDP for each drift: the same mu, prompts, critic and direction, pi further along it.

        These are the steps of a run whose sampling policy stays and whose trained policy moves on.
        """
        nxt, done = self._transitions()
        logits = self._logits(rng)  # (n_prompts, n_states, n_actions)
        direction = self._direction(nxt, rng)
        z = np.tile(np.arange(self.levels), len(nxt) // self.levels)
        mu = _softmax(logits)
        parts: dict[str, Any] = {
            "nxt": nxt,
            "mu": mu,
            "terminal_reward": (z > self.levels / 2).astype(np.float64),
            "x0": self._first_levels(rng),
            "horizon": self.horizon,
            "done": done,
            "gamma": self.gamma,
        }
        fixed = token_mdp(pi=mu, **parts)
        critic = self._critic(fixed, rng)
        together = nxt[:, :, None] == nxt[:, None, :] if self.neutral else None
        visits = occupancy(fixed).sum(1)  # (n_prompts, n_states)
        return [
            token_mdp(pi=_policy_at(drift, mu, direction, together, visits), critic=critic, **parts)
            for drift in drifts
        ]

    def _transitions(self) -> tuple[Int, Bool]:
        """nxt (n_states, n_actions) and done (n_states,)."""
        n, z = self.levels, np.arange(self.levels)
        routine = np.repeat(z[:, None], N_TOKENS, axis=1)
        routine[:, OPEN_FORK] += FORK * n
        fork = np.clip(z[:, None] + FORK_STEP, 0, n - 1)
        fork[:, :3] += FORK * n
        nxt = np.concatenate([routine, fork])
        if self.hazard == 0:
            return nxt, np.zeros(2 * n, dtype=bool)
        # The done mode keeps z, which the terminal reward reads.
        end = DONE * n + z
        nxt = np.concatenate([nxt, np.repeat(end[:, None], N_TOKENS, axis=1)])
        nxt = np.concatenate([nxt, np.tile(end, 3)[:, None]], axis=1)
        return nxt, np.arange(3 * n) >= DONE * n

    def _first_levels(self, rng: np.random.Generator) -> Int:
        """First states, in the routine mode: z in the middle half of its range."""
        quarter = self.levels // 4
        return rng.integers(quarter, self.levels - quarter + 1, self.n_prompts)

    def _logits(self, rng: np.random.Generator) -> Float:
        shape = (2, self.levels, N_TOKENS)
        base = np.stack([np.tile(ROUTINE_LOGITS, (self.levels, 1)), np.zeros(shape[1:])])
        base = base + rng.normal(0.0, SHARED_SPREAD, shape)
        own = rng.normal(0.0, PROMPT_SPREAD, (self.n_prompts, *shape))
        logits = (base + own).reshape(self.n_prompts, 2 * self.levels, N_TOKENS)
        if self.hazard == 0:
            return np.asarray(logits)
        z = np.tile(np.linspace(-0.5, 0.5, self.levels), 2)
        odds = np.log(self.hazard / (1.0 - self.hazard)) + self.hazard_slope * z
        # Against the sum of the others, so that these are the log-odds of EOS exactly.
        eos = np.log(np.exp(logits).sum(-1)) + odds
        logits = np.concatenate([logits, eos[..., None]], axis=-1)
        nowhere = np.zeros((self.n_prompts, self.levels, EOS + 1))
        return np.concatenate([logits, nowhere], axis=1)

    def _direction(self, nxt: Int, rng: np.random.Generator) -> Float:
        """s_p D, (n_prompts, n_states, n_actions)."""
        noise = rng.normal(size=(self.n_prompts, *nxt.shape))
        scale = np.exp(rng.normal(0.0, SCALE_SPREAD, self.n_prompts))[:, None, None]
        up = np.zeros(nxt.shape)
        up[FORK * self.levels : DONE * self.levels, :N_TOKENS] = np.sign(FORK_STEP)
        if self.hazard:
            # Ending is up where the reward is already there, and down where it is not.
            z = np.tile(np.arange(self.levels), 3)
            up[:, EOS] = np.where(z > self.levels / 2, 1.0, -1.0)
        a = self.alignment
        return np.asarray(scale * (a * up + np.sqrt(1.0 - a * a) * noise))

    def _critic(self, mdp: TokenMDP, rng: np.random.Generator) -> Float:
        own = rng.normal(0.0, self.critic_noise, (mdp.n_prompts, 1, mdp.n_states))
        prompt = rng.normal(0.0, self.critic_prompt_noise, (mdp.n_prompts, 1, 1))
        return np.asarray(policy_value(mdp, "mu") + self.critic_offset + own + prompt)


def _softmax(logits: Float) -> Float:
    p = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(p / p.sum(-1, keepdims=True))


def _tilt(mu: Float, shift: Float, together: Bool | None) -> Float:
    """pi ~ mu exp(shift); within each set of tokens in `together` (X, A, A), if given.

    A set keeps its probability: Σ_{a in set} pi = Σ_{a in set} mu.
    """
    pi = mu * np.exp(shift - shift.max(-1, keepdims=True))
    if together is None:
        return np.asarray(pi / pi.sum(-1, keepdims=True))
    kept, now = (np.einsum("xab,pxb->pxa", together, table) for table in (mu, pi))
    # A set of one token keeps w = 1 to the last digit.
    alone = together.sum(-1) == 1
    return np.where(alone, mu, pi * (kept / now))


def _policy_at(
    drift: float, mu: Float, direction: Float, together: Bool | None, visits: Float
) -> Float:
    """pi along `direction` at the η where E_mu|log w| = drift, by bisection."""
    if drift == 0:
        return mu

    def size(eta: float) -> float:
        pi = _tilt(mu, eta * direction, together)
        moved = (mu * np.abs(np.log(pi / mu))).sum(-1)
        return float((visits * moved).sum() / visits.sum())

    low, high = 0.0, 1.0
    while size(high) < drift:
        low, high = high, 2.0 * high
        if high > MAX_TILT:
            raise InputError(f"drift is {drift}; no policy along the drawn direction is so far")
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if size(middle) < drift else (low, middle)
    return _tilt(mu, high * direction, together)
