"""Draw logs from a `TokenMDP`: all rollouts at once, one position after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.tabular.disturb import RatioNoise, ToolHoles
from brace_diag.tabular.log import SimulatedLog
from brace_diag.tabular.mdp import Bool, Float, Int, TokenMDP


def sample_log(
    mdp: TokenMDP,
    n_prompts: int,
    group_size: int,
    rng: np.random.Generator,
    *,
    pool: bool = False,
    noise: RatioNoise | None = None,
    holes: ToolHoles | None = None,
    step: int = 0,
    trainer_version: int = 0,
    behavior_version: int = 0,
    dtype: npt.DTypeLike = np.float32,
) -> SimulatedLog:
    """Sample group_size rollouts of each prompt from mu, and log them.

    Args:
        n_prompts: how many prompts. Without `pool` they are the MDP's first ones, and the truth is
            `exact_truth(mdp.take(range(n_prompts)))`. With `pool` each is drawn from all of the
            MDP's prompts, with replacement and with a prompt id of its own, and the truth is
            `exact_truth(mdp)`: intervals then cover the population of prompts.
        noise: error of the logged log-probs.
        holes: runs of tokens that the policy did not sample.
        step, trainer_version, behavior_version: written to every rollout.
        dtype: of logged log-probs and values; a real log has float32.

    Raises: InputError for more prompts than the MDP has (without `pool`), or none.
    """
    drawn = _draw_prompts(mdp, n_prompts, group_size, pool, rng)
    prompt = np.repeat(drawn, group_size)  # (n_rollouts,)
    states, actions, alive = _walk(mdp, prompt, rng)
    offsets = np.concatenate([[0], np.cumsum(alive.sum(1))]).astype(np.int64)
    rollout, position = np.nonzero(alive)
    at = _Tokens(prompt[rollout], position, states[alive], actions[alive])
    log_mu, log_pi = _log_probs(mdp, at, noise, rng)
    rewards = _rewards(mdp, at)
    n = len(prompt)
    # A draw from the pool is a new prompt to whoever reads the log, whatever the step.
    first_id = step * n_prompts if pool else 0
    return SimulatedLog(
        offsets=offsets,
        mu_logprobs=log_mu.astype(dtype),
        pi_logprobs=log_pi.astype(dtype),
        values=None if mdp.critic is None else at.read(mdp.critic).astype(dtype),
        reward=np.add.reduceat(rewards, offsets[:-1]),
        rewards=None if mdp.step_reward is None else rewards,
        token_ids=at.action.astype(np.int32),
        states=at.state.astype(np.int32),
        prompt_index=prompt,
        prompt_id=first_id + np.repeat(np.arange(n_prompts), group_size),
        rollout_id=step * n + np.arange(n),
        step=np.full(n, step),
        trainer_version=np.full(n, trainer_version),
        behavior_version=np.full(n, behavior_version),
        tool_before=None if holes is None else holes.draw(len(rollout), rng).astype(np.int32),
        tool_after=None if holes is None else holes.draw(n, rng).astype(np.int32),
        poison=(0.0,) if holes is None else holes.poison,
    )


class _Tokens:
    """Where each sampled token stands: prompt, position, state and action, all (n_tokens,)."""

    __slots__ = ("action", "position", "prompt", "state")

    def __init__(self, prompt: Int, position: Int, state: Int, action: Int) -> None:
        self.prompt, self.position, self.state, self.action = prompt, position, state, action

    def read(self, table: Float) -> Float:
        """A (prompt, position, state) table at each token."""
        _, horizon, n_states = table.shape
        row = self.prompt * horizon + self.position
        return np.asarray(np.take(table, row * n_states + self.state))

    def read_token(self, table: Float) -> Float:
        """A table in the shape of the policies, or of the step rewards, at each token."""
        row = self.prompt
        if table.ndim == 4:
            row = row * table.shape[1] + self.position
        n_states, n_actions = table.shape[-2:]
        return np.asarray(np.take(table, (row * n_states + self.state) * n_actions + self.action))


def _walk(mdp: TokenMDP, prompt: Int, rng: np.random.Generator) -> tuple[Int, Int, Bool]:
    """States and actions of every rollout, and where it is alive; all (n_rollouts, horizon)."""
    n, n_states, n_actions = len(prompt), mdp.n_states, mdp.n_actions
    states = np.empty((mdp.horizon, n), dtype=np.int64)
    actions = np.zeros((mdp.horizon, n), dtype=np.int64)
    state, row = mdp.x0[prompt], prompt * n_states
    steps = _steps(mdp.mu)
    step = steps.reshape(-1, n_actions - 1) if mdp.stationary else steps
    # A done state keeps the rollout, whatever its own tokens would do.
    nxt = np.where(mdp.done[:, None], np.arange(n_states)[:, None], mdp.nxt).ravel()
    for t in range(mdp.horizon):
        states[t] = state
        if not mdp.stationary:
            step = steps[:, t].reshape(-1, n_actions - 1)
        u = rng.random((n, 1))
        action = np.count_nonzero(np.take(step, row + state, axis=0) <= u, axis=1)
        actions[t] = action
        state = np.take(nxt, state * n_actions + action)
    alive = ~mdp.done[states]
    return states.T, actions.T, alive.T


def _steps(mu: Float) -> Float:
    """Cumulative probabilities up to each token but the last, (..., n_actions - 1).

    From the last possible token on they are infinite, so that rounding never yields a token of
    probability 0.
    """
    possible = (mu > 0).astype(np.int64)
    later: Int = np.cumsum(possible[..., ::-1], axis=-1)[..., ::-1] - possible
    return np.asarray(np.where(later > 0, np.cumsum(mu, axis=-1), np.inf)[..., :-1])


def _draw_prompts(
    mdp: TokenMDP, n_prompts: int, group_size: int, pool: bool, rng: np.random.Generator
) -> Int:
    """Which of the MDP's prompts each prompt of the log is, (n_prompts,)."""
    if n_prompts < 1 or group_size < 1:
        raise InputError("n_prompts and group_size must be at least 1")
    if pool:
        return rng.integers(mdp.n_prompts, size=n_prompts)
    if n_prompts > mdp.n_prompts:
        raise InputError(
            f"{n_prompts} prompts asked for and the MDP has {mdp.n_prompts}; "
            "ask for fewer, or draw with pool=True"
        )
    return np.arange(n_prompts)


def _log_probs(
    mdp: TokenMDP, at: _Tokens, noise: RatioNoise | None, rng: np.random.Generator
) -> tuple[Float, Float]:
    """log mu and log pi of each token as logged, (n_tokens,)."""
    with np.errstate(divide="ignore"):
        log_mu, log_pi = at.read_token(np.log(mdp.mu)), at.read_token(np.log(mdp.pi))
    if noise is None:
        return log_mu, log_pi
    error = noise.draw(at.state, rng)
    return (log_mu, log_pi + error) if noise.on == "pi" else (log_mu - error, log_pi)


def _rewards(mdp: TokenMDP, at: _Tokens) -> Float:
    """Reward of each token, (n_tokens,)."""
    after = mdp.nxt[at.state, at.action]
    last = (at.position == mdp.horizon - 1) | mdp.done[after]
    rewards = np.zeros(len(after))
    rewards[last] = mdp.terminal_reward[at.prompt[last], after[last]]
    return rewards if mdp.step_reward is None else rewards + at.read_token(mdp.step_reward)
