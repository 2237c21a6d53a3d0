"""`TokenMDP`: a finite-horizon token MDP, small enough to be solved exactly, for many prompts."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

SUM_TOLERANCE = 1e-9
"""How far the probabilities of a state may be from summing to 1: far above float64 rounding."""


@dataclass(frozen=True, slots=True, eq=False)
class TokenMDP:
    """States x, tokens a, deterministic x' = nxt[x, a], two policies, a reward at the end.

    A response starts in x0[p] at position 0. It ends with the token that leads into a `done` state,
    or else with the token at position horizon - 1; that last token earns terminal_reward[p, x'] on
    top of its step reward. States, tokens and transitions are shared by the prompts; policies and
    rewards may differ from prompt to prompt. Build it with `token_mdp`, which checks it.

    Attributes:
        nxt: int64 (n_states, n_actions), the state after token a in state x.
        mu, pi: (n_prompts, n_states, n_actions), or (n_prompts, horizon, n_states, n_actions) where
            the policies change within the response. pi is 0 wherever mu is.
        terminal_reward: (n_prompts, n_states), earned on entering the end.
        x0: int64 (n_prompts,), first states.
        horizon: most tokens a response can have, at least 1.
        done: bool (n_states,), states that end the response; no token is sampled there.
        step_reward: (n_prompts, n_states, n_actions), or None for none.
        gamma: discount per token, in (0, 1].
        critic: (n_prompts, horizon, n_states), the V that a log of this MDP records, or None.
    """

    nxt: Int
    mu: Float
    pi: Float
    terminal_reward: Float
    x0: Int
    horizon: int
    done: Bool
    step_reward: Float | None = None
    gamma: float = 1.0
    critic: Float | None = None

    @property
    def n_prompts(self) -> int:
        return len(self.x0)

    @property
    def n_states(self) -> int:
        return int(self.nxt.shape[0])

    @property
    def n_actions(self) -> int:
        return int(self.nxt.shape[1])

    @property
    def stationary(self) -> bool:
        """Whether the policies are the same at every position."""
        return self.mu.ndim == 3

    def at(self, table: Float, t: int) -> Float:
        """The slice of a table shaped as `mu` at position t, (n_prompts, n_states, n_actions)."""
        return table if table.ndim == 3 else table[:, t]

    @property
    def weights(self) -> Float:
        """w = pi/mu in the shape of `mu`; 0 where mu is 0, which no log ever shows."""
        possible = self.mu > 0
        return np.where(possible, self.pi / np.where(possible, self.mu, 1.0), 0.0)

    def last(self, t: int) -> Bool:
        """Which tokens at position t end the response, (n_states, n_actions)."""
        if t == self.horizon - 1:
            return np.ones(self.nxt.shape, dtype=bool)
        return np.asarray(self.done[self.nxt])

    def reward(self, t: int) -> Float:
        """Reward of each token at position t, (n_prompts, n_states, n_actions)."""
        final = np.where(self.last(t), self.terminal_reward[:, self.nxt], 0.0)
        return final if self.step_reward is None else final + self.step_reward

    def take(self, prompts: npt.ArrayLike) -> TokenMDP:
        """The same MDP for some of its prompts, in the order given (repeats allowed)."""
        index = np.asarray(prompts, dtype=np.int64)
        return replace(
            self,
            mu=self.mu[index],
            pi=self.pi[index],
            terminal_reward=self.terminal_reward[index],
            x0=self.x0[index],
            step_reward=None if self.step_reward is None else self.step_reward[index],
            critic=None if self.critic is None else self.critic[index],
        )

    def with_critic(self, critic: npt.ArrayLike) -> TokenMDP:
        """The same MDP with another critic, of any shape that spreads to its table."""
        shape = (self.n_prompts, self.horizon, self.n_states)
        return replace(self, critic=_spread("critic", critic, shape))


def token_mdp(
    *,
    nxt: npt.ArrayLike,
    mu: npt.ArrayLike,
    pi: npt.ArrayLike,
    terminal_reward: npt.ArrayLike,
    x0: npt.ArrayLike,
    horizon: int,
    done: npt.ArrayLike | None = None,
    step_reward: npt.ArrayLike | None = None,
    gamma: float = 1.0,
    critic: npt.ArrayLike | None = None,
) -> TokenMDP:
    """Build a `TokenMDP` and check it; arguments as its attributes.

    terminal_reward may also be (n_states,), step_reward (n_states, n_actions), x0 one state for all
    prompts: they are then the same for every prompt.

    Raises: InputError for shapes that do not fit, probabilities that are negative or do not sum to
        1, a policy pi with support outside mu's (then E_mu[w] < 1 and no log can tell), a response
        that starts in a done state.
    """
    nxt, mu = np.asarray(nxt, dtype=np.int64), np.asarray(mu, dtype=np.float64)
    pi = np.asarray(pi, dtype=np.float64)
    _check_policies(nxt, mu, pi, horizon)
    n_prompts, n_states = len(mu), len(nxt)
    is_done = np.zeros(n_states, bool) if done is None else np.asarray(done, dtype=bool)
    starts = np.broadcast_to(np.asarray(x0, dtype=np.int64), (n_prompts,))
    if is_done.shape != (n_states,):
        raise InputError(f"done has shape {is_done.shape}; it must be {(n_states,)}")
    if starts.min() < 0 or starts.max() >= n_states or is_done[starts].any():
        raise InputError(f"x0 must name states 0 .. {n_states - 1} that are not done")
    if not 0 < gamma <= 1:
        raise InputError(f"gamma is {gamma}; it must be above 0 and at most 1")
    per_token = (n_prompts, *nxt.shape)
    return TokenMDP(
        nxt=nxt,
        mu=mu,
        pi=pi,
        terminal_reward=_spread("terminal_reward", terminal_reward, (n_prompts, n_states)),
        x0=starts,
        horizon=int(horizon),
        done=is_done,
        step_reward=None if step_reward is None else _spread("step_reward", step_reward, per_token),
        gamma=float(gamma),
        critic=None
        if critic is None
        else _spread("critic", critic, (n_prompts, int(horizon), n_states)),
    )


def _check_policies(nxt: Int, mu: Float, pi: Float, horizon: int) -> None:
    if horizon < 1:
        raise InputError(f"horizon is {horizon}; it must be at least 1")
    if nxt.ndim != 2 or not nxt.size or nxt.min() < 0 or nxt.max() >= len(nxt):
        raise InputError("nxt must be (n_states, n_actions) and hold states 0 .. n_states - 1")
    shapes = (nxt.shape, (horizon, *nxt.shape))
    if mu.ndim not in (3, 4) or mu.shape[1:] not in shapes or not len(mu):
        raise InputError(f"mu has shape {mu.shape}; it must be (n_prompts, *{nxt.shape})")
    if pi.shape != mu.shape:
        raise InputError(f"pi has shape {pi.shape} and mu {mu.shape}; they must be equal")
    for name, policy in (("mu", mu), ("pi", pi)):
        off = np.abs(policy.sum(-1) - 1.0).max()
        # Negated so that NaN is refused too.
        if not (policy.min() >= 0 and off <= SUM_TOLERANCE):
            raise InputError(f"{name} must hold probabilities that sum to 1; largest miss {off:g}")
    if ((mu == 0) & (pi > 0)).any():
        raise InputError("pi is positive where mu is 0: such tokens never appear in a log of mu")


def _spread(name: str, array: npt.ArrayLike, shape: tuple[int, ...]) -> Float:
    values = np.asarray(array, dtype=np.float64)
    try:
        return np.broadcast_to(values, shape)
    except ValueError as error:
        raise InputError(f"{name} has shape {values.shape}; it must spread to {shape}") from error
