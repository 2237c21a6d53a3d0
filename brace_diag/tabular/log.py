"""`SimulatedLog`: sampled rollouts, as estimators should see them and as a file would hold them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.errors import InputError
from brace_diag.tabular.mdp import Float, Int

Floats = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedLog:
    """Rollouts sampled from a `TokenMDP`; policy tokens packed end to end.

    Attributes:
        offsets: int64 (n_rollouts + 1,); rollout i owns tokens offsets[i] .. offsets[i+1]-1.
        mu_logprobs, pi_logprobs, values: (n_tokens,), as logged; values None without a critic.
        reward: float64 (n_rollouts,), undiscounted sum of the rollout's rewards.
        rewards: float64 (n_tokens,), where the MDP has step rewards; else None.
        token_ids: int32 (n_tokens,), the tokens a.
        states: int32 (n_tokens,), the states x that the tokens were sampled in; never logged.
        prompt_index: int64 (n_rollouts,), the prompt within the MDP; never logged.
        prompt_id: int64 (n_rollouts,), the prompt as logged, distinct for each draw from a pool.
        rollout_id: int64 (n_rollouts,).
        step, trainer_version, behavior_version: int64 (n_rollouts,).
        tool_before: int32 (n_tokens,), tokens that nobody sampled right before each token, and
        tool_after: int32 (n_rollouts,), after the last; both None without holes.
        poison: what stands in the float cells of those tokens, in turn.
    """

    offsets: Int
    mu_logprobs: Floats
    pi_logprobs: Floats
    values: Floats | None
    reward: Float
    rewards: Float | None
    token_ids: npt.NDArray[np.int32]
    states: npt.NDArray[np.int32]
    prompt_index: Int
    prompt_id: Int
    rollout_id: Int
    step: Int
    trainer_version: Int
    behavior_version: Int
    tool_before: npt.NDArray[np.int32] | None = None
    tool_after: npt.NDArray[np.int32] | None = None
    poison: tuple[float, ...] = (0.0,)

    @property
    def n_rollouts(self) -> int:
        return len(self.reward)

    @property
    def n_tokens(self) -> int:
        """Policy tokens."""
        return int(self.offsets[-1])

    @property
    def lengths(self) -> Int:
        """Policy tokens of each rollout, (n_rollouts,)."""
        return np.diff(self.offsets)

    @property
    def positions(self) -> Int:
        """Position of each policy token in its rollout, (n_tokens,)."""
        return np.arange(self.n_tokens) - np.repeat(self.offsets[:-1], self.lengths)

    def along(self, table: Float) -> Float:
        """A table over (prompt, position, state) read along the rollouts, (n_tokens,).

        With the tables of `policy_value` these are V^mu, V^pi and b at every token of the log.
        """
        prompt = np.repeat(self.prompt_index, self.lengths)
        return np.asarray(table[prompt, self.positions, self.states])

    def to_columns(self) -> dict[str, npt.NDArray[Any]]:
        """The log as a file holds it: flat token columns with `offsets`, and one value per rollout.

        Names are the canonical ones. With holes, `policy_mask` is there too, the offsets count
        every token, and float cells of tokens that nobody sampled hold the poison.
        """
        tokens: dict[str, npt.NDArray[Any]] = {
            "mu_logprobs": self.mu_logprobs,
            "pi_logprobs": self.pi_logprobs,
            "token_ids": self.token_ids,
        }
        if self.values is not None:
            tokens["values"] = self.values
        if self.rewards is not None:
            tokens["rewards"] = self.rewards
        names = ("prompt_id", "rollout_id", "step", "trainer_version", "behavior_version")
        rows: dict[str, npt.NDArray[Any]] = {name: getattr(self, name) for name in names}
        if self.rewards is None:
            rows["reward"] = self.reward
        offsets = self.offsets
        if self.tool_before is not None:
            tokens, offsets = self._with_holes(tokens)
        return {"offsets": offsets, **tokens, **rows}

    def _with_holes(
        self, tokens: dict[str, npt.NDArray[Any]]
    ) -> tuple[dict[str, npt.NDArray[Any]], Int]:
        assert self.tool_before is not None and self.tool_after is not None
        after = np.concatenate([[0], np.cumsum(self.tool_after, dtype=np.int64)])
        before = np.concatenate([[0], np.cumsum(self.tool_before, dtype=np.int64)])
        offsets = self.offsets + before[self.offsets] + after
        # Where each policy token lands: behind all earlier tokens and runs, its own included.
        rollout = np.repeat(np.arange(self.n_rollouts), self.lengths)
        at = np.arange(self.n_tokens) + before[1:] + after[rollout]
        n = int(offsets[-1])
        mask = np.zeros(n, dtype=bool)
        mask[at] = True
        out: dict[str, npt.NDArray[Any]] = {"policy_mask": mask}
        for name, column in tokens.items():
            # A reward on a token that nobody sampled would count, by folding; an id is an int.
            filler = (0,) if name in ("rewards", "token_ids") else self.poison
            cells = np.resize(np.asarray(filler, dtype=column.dtype), n)
            cells[at] = column
            out[name] = cells
        return out, offsets

    def to_table(self) -> Any:
        """The log as a `pyarrow.Table` with canonical columns, lists per rollout."""
        import pyarrow as pa

        columns = self.to_columns()
        offsets = columns.pop("offsets")
        if offsets[-1] > np.iinfo(np.int32).max:
            raise InputError("more than 2^31 tokens in one table; write the steps one by one")
        starts = pa.array(offsets.astype(np.int32))
        n = self.n_rollouts
        return pa.table(
            {
                name: pa.array(column)
                if len(column) == n and name in _PER_ROLLOUT
                else pa.ListArray.from_arrays(starts, pa.array(column))
                for name, column in columns.items()
            }
        )


_PER_ROLLOUT = frozenset(
    ("reward", "prompt_id", "rollout_id", "step", "trainer_version", "behavior_version")
)


def concatenate(logs: list[SimulatedLog]) -> SimulatedLog:
    """Several logs as one, in order; rollout ids are numbered anew so that they stay distinct.

    Raises: InputError when the logs differ in which columns they have, or in their poison.
    """
    if not logs:
        raise InputError("no log to concatenate")
    first = logs[0]
    joined: dict[str, Any] = {}
    for name in (field.name for field in fields(SimulatedLog)):
        parts = [getattr(log, name) for log in logs]
        if name == "poison":
            continue
        if any((part is None) != (parts[0] is None) for part in parts):
            raise InputError(f"some logs have {name} and some have not")
        joined[name] = None if parts[0] is None else np.concatenate(parts)
    if any(len(log.poison) != len(first.poison) for log in logs):
        raise InputError("the logs differ in their poison")
    lengths = np.concatenate([log.lengths for log in logs])
    joined["offsets"] = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    joined["rollout_id"] = np.arange(len(lengths), dtype=np.int64)
    return replace(first, **joined)
