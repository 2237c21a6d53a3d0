"""One machine: read a run batch by batch, add every estimator's sums, close them into results."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.engines.runs import Progress, RunLike, as_run
from brace_diag.errors import SchemaError
from brace_diag.estimators.duplicates import DuplicateFilter
from brace_diag.estimators.gap_notes import gap_notes, invalidating, no_staleness
from brace_diag.estimators.gap_state import GapState, RolloutInfo
from brace_diag.estimators.intervals import probe_size
from brace_diag.estimators.log_checks import LogSigns
from brace_diag.estimators.sibling_index import SiblingIndex
from brace_diag.estimators.value_gap import distrusted, estimate_gap, estimate_key
from brace_diag.estimators.value_range import ValueRange, returns_range
from brace_diag.quality import DataQuality
from brace_diag.readers.index import RunIndex
from brace_diag.results import KeyedGap, ValueGap
from brace_diag.rollouts import UNKNOWN, Rollouts
from brace_diag.settings import GapSettings

GAP_COLUMNS = frozenset(
    {
        "mu_logprobs", "pi_logprobs", "values", "reward", "rewards", "policy_mask", "prompt_id",
        "rollout_id", "step", "trainer_version", "behavior_version", "versions", "truncated",
        "bootstrap_value",
    }
)  # fmt: skip


def value_gap(
    run: RunLike | Iterable[Rollouts],
    settings: GapSettings | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> ValueGap:
    """Gap b(t) = V^pi - V^mu by position, batch figures of eq 7 and the critic's bias.

    The estimator is `wdr`: b(t) = mean over rollouts alive at t of Σ_{l>=t} γ^(l-t) h_l u_l A_l,
    u = w - 1, A = G - V less its mean over rollouts, h_l = min(C_{t:l}, 2) over its mean. Intervals
    are by cluster = prompt. b has the unit of the return; positive: pi is better than mu.

    Args:
        run: an opened run, or `Rollouts` (a list is read twice, so not a generator).
        settings: what to estimate; `changes` override single fields, e.g. `by="step"`.
        threads: threads of the sums; all cores by default. The result does not depend on it.
        progress: called with rows done and rows in all.

    Raises:
        SchemaError: a needed column is missing, or no rollout holds a policy token.
    """
    chosen = replace(settings or GapSettings(), **changes)
    source = as_run(run)
    require(source, "mu_logprobs", "pi_logprobs")
    index = source.index()
    siblings = SiblingIndex.build(index.prompt, index.step, index.total_reward)
    walk = GapPass(
        chosen,
        siblings,
        _keys(index, chosen),
        threads or os.cpu_count() or 1,
        "values" in source.columns,
        LogSigns(ValueRange(*returns_range(index.total_reward))),
    )
    done = 0
    for batch in source.rollouts(GAP_COLUMNS & set(source.columns)):
        walk.add(batch)
        done += batch.n_rollouts
        if progress is not None:
            progress(done, len(index.prompt))
    return walk.result(source.source)


@dataclass(slots=True)
class GapPass:
    """One pass of `value_gap` over a run: states on the asked axis and by key."""

    settings: GapSettings
    siblings: SiblingIndex
    keys: npt.NDArray[np.int64] | None
    threads: int
    has_values: bool
    signs: LogSigns
    quality: DataQuality = field(default_factory=DataQuality)
    duplicates: DuplicateFilter = field(default_factory=DuplicateFilter)
    states: list[GapState] = field(default_factory=list)
    open: dict[int, GapState] = field(default_factory=dict)
    left: dict[int, int] = field(default_factory=dict)
    closed: list[KeyedGap] = field(default_factory=list)

    def __post_init__(self) -> None:
        s = self.settings
        self.states.append(GapState(s.axis, s.gamma, True))
        if s.axis != "position":
            self.states.append(GapState("position", s.gamma, False))
        if self.keys is not None:
            known, counts = np.unique(self.keys, return_counts=True)
            self.left = dict(zip(known.tolist(), counts.tolist(), strict=True))

    def add(self, batch: Rollouts) -> None:
        """Take a batch in, in reading order."""
        info = self._info(batch)
        self.signs.update(batch)
        for state in self.states:
            state.update(batch, info, threads=self.threads)
        if self.keys is not None:
            self._add_keyed(batch, info)

    def result(self, source: str) -> ValueGap:
        """Close every sum into the result."""
        if self.quality.n_tokens == 0:
            raise SchemaError(
                f"{source}: no policy tokens in {self.quality.n_rows} rows; "
                "check policy_mask and the log-prob columns"
            )
        main = estimate_gap(
            self.states[0],
            self.settings,
            position_state=self.states[1] if len(self.states) > 1 else None,
            has_values=self.has_values,
            allow_group=self._may_group(),
        )
        for key in list(self.open):
            self._close(key)
        notes = gap_notes(self.settings, self.quality, main, self.signs)
        grave = invalidating(main, self.signs)
        if grave:
            main = distrusted(main, grave[0].split(":")[0])
        nothing = no_staleness(main)
        return ValueGap(
            source=source,
            settings=self.settings,
            quality=self.quality,
            batch=main.batch,
            gap=main.gap,
            critic_bias=main.critic_bias,
            saturation_z=main.saturation_z,
            mean_weight=main.mean_weight,
            u_control=main.u_control,
            gate=main.gate,
            whitening=main.whitening,
            probe_rollouts=probe_size(main.batch.b_hat.n_clusters),
            invalid=next(iter([*grave, *nothing]), None),
            by=tuple(sorted(self.closed, key=lambda entry: entry.key)),
            notes=notes,
        )

    def _may_group(self) -> bool:
        """Whether siblings' returns may centre a rollout's: not where a sibling is its copy."""
        return self.siblings.has_siblings and self.duplicates.n_duplicates == 0

    def _info(self, batch: Rollouts) -> RolloutInfo:
        first = self.duplicates.first_seen(batch)
        rows = batch.row
        alive = batch.lengths > 0
        use = batch.has_w & batch.has_reward & first & alive
        if self.has_values:
            use &= batch.has_values
        z = self.siblings.others_mean[rows] - _first_values(batch)
        lost = int((alive & ~batch.has_w).sum())
        self.quality += replace(
            batch.quality,
            n_duplicates=batch.quality.n_duplicates + int((~first).sum()),
            rollouts_without_w=lost,
            rollouts_without_values=int((alive & ~batch.has_values).sum())
            if self.has_values
            else 0,
        )
        self.quality = replace(self.quality, n_repeats_kept=self.duplicates.n_repeats_kept)
        return RolloutInfo(
            use=use,
            counted=first,
            z=np.where(np.isfinite(z), z, 0.0),
            siblings=self.siblings.key[rows],
            expected=self.siblings.expected[rows],
        )

    def _add_keyed(self, batch: Rollouts, info: RolloutInfo) -> None:
        assert self.keys is not None
        keys = self.keys[batch.row]
        for key in np.unique(keys).tolist():
            subset = np.flatnonzero(keys == key)
            if key != UNKNOWN:
                if key not in self.open:
                    self.open[key] = GapState(
                        "position", self.settings.gamma, self.settings.by_positions
                    )
                self.open[key].update(batch, info, subset=subset, threads=self.threads)
            self.left[key] -= len(subset)
            if self.left[key] == 0 and key != UNKNOWN:
                self._close(key)

    def _close(self, key: int) -> None:
        state = self.open.pop(key)
        self.closed.append(
            estimate_key(key, state, self.settings, self.has_values, self._may_group())
        )


def _first_values(batch: Rollouts) -> npt.NDArray[np.float64]:
    """Critic at each rollout's first policy token; 0 without a critic or a token."""
    out = np.zeros(batch.n_rollouts)
    if batch.values is not None:
        alive = np.flatnonzero(batch.lengths > 0)
        out[alive] = batch.values[batch.offsets[:-1][alive]]
    return out


def _keys(index: RunIndex, settings: GapSettings) -> npt.NDArray[np.int64] | None:
    if settings.by is None:
        return None
    column = index.step if settings.by == "step" else index.staleness
    if column is None:
        needs = "a step column" if settings.by == "step" else "trainer_version and behavior_version"
        raise SchemaError(f"--by {settings.by} needs {needs}; the log has none")
    return np.asarray(column, np.int64)


def require(run: RunLike, *columns: str) -> None:
    """Refuse by name when the log lacks a column that the question needs."""
    missing = [c for c in columns if c not in run.columns]
    if missing:
        have = ", ".join(sorted(run.columns))
        raise SchemaError(
            f"{run.source}: no column {' or '.join(missing)}; the value gap needs log-probs of "
            "both "
            f"policies. The log has: {have}. If it is there under another name: --map "
            f"{missing[0]}=NAME"
        )
