"""Small random MDPs, literal formulas and stored solutions: what exact solutions must equal."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from brace_diag.tabular import Paths, TokenMDP, prefix_tree, token_mdp

GOLDEN = Path(__file__).parents[1] / "golden"
TAG = re.compile(r"fpstates_(c(?P<c>[\d.]+|inf)_r(?P<r>[\d.]+|inf)_l(?P<l>[\d.]+)_k(?P<k>\d+))")


class Golden:
    """Stored exact solutions of one MDP, made by an independent program, and that MDP."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as stored:
            self.stored = {name: stored[name] for name in stored.files}

    def __getitem__(self, name: str) -> np.ndarray:
        return self.stored[name]

    @property
    def mdp(self) -> TokenMDP:
        return token_mdp(
            nxt=self["nxt"],
            mu=self["mu"],
            pi=self["pi"],
            terminal_reward=self["rT"],
            x0=self["x0"],
            horizon=self["Vmu_states"].shape[1],
            gamma=float(self["gamma"]),
            critic=self["V_phi_states"],
        )

    def operators(self):
        """Tag and parameters (k, c_bar, rho_bar, lam) of every stored operator."""
        for name in self.stored:
            if match := TAG.fullmatch(name):
                yield (
                    match[1],
                    {
                        "k": int(match["k"]),
                        "c_bar": float(match["c"]),
                        "rho_bar": float(match["r"]),
                        "lam": float(match["l"]),
                    },
                )


@pytest.fixture(params=["golden_t16", "golden_t16_gamma97", "golden_t32_null"])
def golden(request) -> Golden:
    return Golden(GOLDEN / f"{request.param}.npz")


def make_random_mdp(
    seed: int, *, horizon=5, gamma=0.9, ends=True, changing=False, n_prompts=2, n_actions=3
) -> TokenMDP:
    """Random transitions and policies, step and terminal rewards; two states end the response."""
    rng = np.random.default_rng(seed)
    n_states = 6
    shape = (n_prompts, horizon) if changing else (n_prompts,)
    logits = rng.normal(size=(*shape, n_states, n_actions))
    moved = logits + rng.normal(0.0, 0.6, logits.shape)
    done = np.arange(n_states) >= 4 if ends else None
    return token_mdp(
        nxt=rng.integers(n_states, size=(n_states, n_actions)),
        mu=np.exp(logits) / np.exp(logits).sum(-1, keepdims=True),
        pi=np.exp(moved) / np.exp(moved).sum(-1, keepdims=True),
        terminal_reward=rng.normal(size=(n_prompts, n_states)),
        x0=rng.integers(4, size=n_prompts),
        horizon=horizon,
        done=done,
        step_reward=rng.normal(size=(n_prompts, n_states, n_actions)),
        gamma=gamma,
        critic=rng.normal(size=(n_prompts, horizon, n_states)),
    )


def compute_literal_target(target, w, r, v, *, k, rho_bar, c_bar, lam, gamma):
    """One target of every token of one response, by the sums that define it."""
    n = len(w)
    c, rho = lam * np.minimum(c_bar, w), np.minimum(rho_bar, w)
    delta = r + gamma * np.append(v[1:], 0.0) - v
    out = np.zeros(n)
    for s in range(n):
        j = min(s + k, n - 1)
        stop = min(s + k, n) if target == "vtrace" else n
        out[s] = v[s]
        for m in range(s, stop):
            weight = 1.0 if target == "brace" and m >= j else rho[m]
            reach = min(m, j if target == "brace" else s + k)
            out[s] += gamma ** (m - s) * np.prod(c[s : int(reach)]) * weight * delta[m]
    return out


def compute_mean_given_state(mdp: TokenMDP, paths: Paths, per_token: np.ndarray) -> np.ndarray:
    """E_mu[per_token | s_t = x] from all responses, (horizon, n_states); NaN if never met."""
    mass = np.zeros((mdp.horizon, mdp.n_states))
    total = np.zeros_like(mass)
    path, t = np.nonzero(paths.states >= 0)
    where = (t, paths.states[path, t])
    np.add.at(mass, where, paths.probability[path])
    np.add.at(total, where, paths.probability[path] * per_token[path, t])
    return np.divide(total, mass, out=np.full_like(mass, np.nan), where=mass > 0)


MDPS = {
    "fixed length": lambda: make_random_mdp(1, ends=False),
    "random length": lambda: make_random_mdp(2),
    "random length, undiscounted": lambda: make_random_mdp(3, gamma=1.0),
    "changing policies": lambda: make_random_mdp(4, changing=True),
    "one token": lambda: make_random_mdp(5, horizon=1),
    "tree": lambda: prefix_tree(
        n_actions=3,
        horizon=5,
        rng=np.random.default_rng(6),
        n_prompts=2,
        gamma=0.95,
        step_rewards=True,
    ).with_critic(0.4),
}


@pytest.fixture(params=MDPS)
def mdp(request) -> TokenMDP:
    return MDPS[request.param]()


@pytest.fixture
def random_mdp():
    return make_random_mdp


@pytest.fixture
def literal_target():
    return compute_literal_target


@pytest.fixture
def mean_given_state():
    return compute_mean_given_state
