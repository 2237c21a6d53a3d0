"""One prepared pass over a run: siblings known, copies marked, everything counted on the way."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from brace_diag.engines.runs import Progress, RunLike, as_run
from brace_diag.errors import InputError, SchemaError
from brace_diag.estimators.duplicates import DuplicateFilter
from brace_diag.estimators.log_checks import LogSigns
from brace_diag.estimators.rollout_info import RolloutInfo
from brace_diag.estimators.sibling_index import SiblingIndex
from brace_diag.estimators.staleness import last_staleness, staleness_words
from brace_diag.estimators.value_range import ValueRange, returns_range
from brace_diag.quality import DataQuality
from brace_diag.readers.chunk import Chunk
from brace_diag.readers.index import RunIndex
from brace_diag.readers.run import Run
from brace_diag.rollouts import Rollouts
from brace_diag.settings import By, StalenessKind

T = TypeVar("T")

# Read for every question: rewards, masks, clusters, copies, keys.
ALWAYS = frozenset(
    {
        "mu_logprobs", "reward", "rewards", "policy_mask", "prompt_id", "rollout_id", "step",
        "trainer_version", "behavior_version", "versions", "truncated", "bootstrap_value",
    }
)  # fmt: skip


@dataclass(slots=True)
class Reading:
    """A run on its way through an estimator.

    Attributes:
        run: what is read; columns: canonical columns that are decoded.
        index, siblings: what the cheap first pass knows of every row.
        signs: fitness of the log, learned on the way.
        quality: counts so far; complete once `batches` is exhausted.
        duplicates: copies so far.
    """

    run: RunLike
    columns: frozenset[str]
    index: RunIndex
    siblings: SiblingIndex
    signs: LogSigns
    quality: DataQuality = field(default_factory=DataQuality)
    duplicates: DuplicateFilter = field(default_factory=DuplicateFilter)

    @classmethod
    def open(
        cls,
        run: RunLike | Iterable[Rollouts],
        question: str,
        needs: Collection[str] = (),
        wants: Collection[str] = (),
    ) -> Reading:
        """Make the first pass.

        Args:
            question: what is asked, for the message when a column is missing.
            needs: columns without which it cannot be answered; wants: read where the log has them.

        Raises: SchemaError naming the missing columns.
        """
        source = as_run(run)
        require(source, question, needs)
        index = source.index()
        return cls(
            run=source,
            columns=(ALWAYS | set(needs) | set(wants)) & set(source.columns),
            index=index,
            siblings=SiblingIndex.build(index.prompt, index.step, index.total_reward),
            signs=LogSigns(ValueRange(*returns_range(index.total_reward))),
        )

    @property
    def has_values(self) -> bool:
        """Whether critic values are read."""
        return "values" in self.columns

    @property
    def has_w(self) -> bool:
        """Whether the log-probs of both policies are read."""
        return {"mu_logprobs", "pi_logprobs"} <= self.columns

    @property
    def may_group(self) -> bool:
        """Whether siblings' returns may centre a rollout's: not where a sibling is its copy."""
        return self.siblings.has_siblings and self.duplicates.n_duplicates == 0

    def keys(
        self, by: By | None, staleness: StalenessKind = "first"
    ) -> npt.NDArray[np.int64] | None:
        """Key of every row, or None; SchemaError where the log does not tell it.

        `staleness`: of the rollout's first or last policy token; the last takes a pass of its own.
        """
        if by is None:
            return None
        if by == "staleness" and staleness == "last":
            return last_staleness(self.run.rollouts(frozenset({"trainer_version", "versions"})))
        column = self.index.step if by == "step" else self.index.staleness
        if column is None:
            needs = "a step column" if by == "step" else "trainer_version and behavior_version"
            raise SchemaError(f"--by {by} needs {needs}; the log has none")
        return np.asarray(column, np.int64)

    def key_notes(self, by: By | None, staleness: StalenessKind = "first") -> tuple[str, ...]:
        """What a reader of keyed estimates must know of the key: a sentence, or none."""
        if by != "staleness":
            return ()
        return (staleness_words(staleness, "versions" in self.run.columns),)

    def batches(self, progress: Progress | None = None) -> Iterator[tuple[Rollouts, RolloutInfo]]:
        """Every batch with what is known of its rollouts, in reading order.

        Raises: SchemaError at the end of a log without a policy token.
        """
        plain = ((batch, batch) for batch in self.run.rollouts(self.columns))
        yield from self._walk(plain, progress)

    def chunks(
        self, progress: Progress | None = None, *, chunk_tokens: int
    ) -> Generator[tuple[Chunk, RolloutInfo], None, None]:
        """As `batches`, with the log's own columns; only of a run that was opened from a log."""
        if not isinstance(self.run, Run):
            raise InputError(f"{self.run.source} have no columns of their own to copy")
        parts = self.run.chunks(self.columns, chunk_tokens=chunk_tokens)
        with closing(parts):
            yield from self._walk(((part, part.rollouts) for part in parts), progress)

    def _walk(
        self, parts: Iterable[tuple[T, Rollouts]], progress: Progress | None
    ) -> Iterator[tuple[T, RolloutInfo]]:
        """Every part with what is known of its rollouts, counted on the way."""
        done, total = 0, len(self.index.prompt)
        for part, batch in parts:
            info = self._info(batch)
            self.signs.update(batch)
            yield part, info
            done += batch.n_rollouts
            if progress is not None:
                progress(done, total)
        if self.quality.n_tokens == 0:
            raise SchemaError(
                f"{self.run.source}: no policy tokens in {self.quality.n_rows} rows; "
                "check policy_mask and the log-prob columns"
            )

    def _info(self, batch: Rollouts) -> RolloutInfo:
        first = self.duplicates.first_seen(batch)
        alive = batch.lengths > 0
        use = batch.has_w & batch.has_reward & first & alive
        without_values = np.zeros(batch.n_rollouts, np.bool_)
        if self.has_values:
            without_values = alive & ~batch.has_values
            use &= batch.has_values
        self.quality += replace(
            batch.quality,
            n_duplicates=batch.quality.n_duplicates + int((~first).sum()),
            rollouts_without_w=int((alive & ~batch.has_w).sum()) if self.has_w else 0,
            rollouts_without_values=int(without_values.sum()),
        )
        self.quality = replace(self.quality, n_repeats_kept=self.duplicates.n_repeats_kept)
        z = self.siblings.others_mean[batch.row] - _first_values(batch)
        return RolloutInfo(
            use=use,
            counted=first,
            z=np.where(np.isfinite(z), z, 0.0),
            siblings=self.siblings.key[batch.row],
            expected=self.siblings.expected[batch.row],
        )


def _first_values(batch: Rollouts) -> npt.NDArray[np.float64]:
    """Critic at each rollout's first policy token; 0 without a critic or a token."""
    out = np.zeros(batch.n_rollouts)
    if batch.values is not None:
        alive = np.flatnonzero(batch.lengths > 0)
        out[alive] = batch.values[batch.offsets[:-1][alive]]
    return out


def require(run: RunLike, question: str, needs: Collection[str]) -> None:
    """Refuse by name when the log lacks a column that the question needs."""
    missing = [c for c in needs if c not in run.columns]
    if missing:
        unused = ", ".join(getattr(run, "unused", ())) or "none"
        raise SchemaError(
            f"{run.source}: no column {' or '.join(missing)}, which {question} needs; the log has "
            f"{', '.join(sorted(run.columns))}\n"
            f"columns with other names: {unused}; if it is one of them: --map {missing[0]}=NAME"
        )
