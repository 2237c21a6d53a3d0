"""A log with value targets beside its own columns: one pass, a few row groups in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from brace_diag.engines.reading import Reading
from brace_diag.engines.runs import Progress
from brace_diag.engines.target_columns import AlignedLists, added_columns
from brace_diag.engines.target_notes import target_notes
from brace_diag.engines.target_nulls import REASONS, null_reasons
from brace_diag.errors import InputError
from brace_diag.estimators.target_summary import TargetSums, compare, correlations_of
from brace_diag.estimators.value_range import returns_range
from brace_diag.readers.chunk import Chunk
from brace_diag.readers.run import CHUNK_TOKENS, Run
from brace_diag.results_targets import TargetFigures, TargetsWritten
from brace_diag.rollouts import Floats
from brace_diag.rollouts_kernels import count_nonfinite
from brace_diag.settings import TargetSpec, parse_targets
from brace_diag.targets.device import Device, device_of, token_type
from brace_diag.targets.recursion import Recursion, recursion
from brace_diag.writer import CanonicalWriter


def write_targets(
    run: Run,
    out: str | os.PathLike[str],
    specs: Sequence[str | TargetSpec] = ("brace",),
    *,
    device: str = "auto",
    level: float = 0.95,
    force: bool = False,
    progress: Progress | None = None,
) -> TargetsWritten:
    """Write a log's own columns, unchanged and in order, and beside them value targets.

    Each target adds three list columns, aligned with the lists of their row: `target_<label>`,
    `advantage_<label>` = r_s + γ target_{s+1} - V_s (eq 27) and `log10_kappa_<label>`, the share of
    the final reward that reaches the target. An entry is null off the policy mask and where the
    window touches a missing number. All files of the run become one Parquet file, in reading order;
    it appears under its name when it is complete and on disk.

    Args:
        run: what `open_run` returned.
        out: the file to write.
        specs: targets, as `TargetSpec` or as typed: "brace", "vtrace:n=64", "brace:k=20,c_bar=1".
        device: `auto`, `cpu` or `cuda`; auto takes cuda where torch has a device.
        level: level of the intervals in the result.
        force: replace a file that is there.
        progress: called with rows done and rows in all.

    Returns: what was written, and how the targets differ.

    Raises:
        InputError: the file exists, the log has columns of the new names, or an argument is wrong.
        SchemaError: a column that a target needs is missing.
        OSError: the file cannot be written; nothing is left under its name then.
    """
    if not isinstance(run, Run):
        raise InputError("write_targets copies the columns of a log: pass what open_run returned")
    if not 0.0 < level < 1.0:
        raise InputError(f"level is {level}; it must lie strictly between 0 and 1")
    chosen, place = parse_targets(specs), device_of(device)
    columns = added_columns(chosen, run.own_schema.names, run.source)
    labels = {c["target"]: s.label for c, s in zip(columns, chosen, strict=True)}
    with CanonicalWriter(
        out, force=force, foreign=True, metadata={"brace_diag.targets": json.dumps(labels)}
    ) as writer:
        reading = _open(run, chosen)
        sums = TargetSums(len(chosen), reading.has_values, *_range(reading))
        work = _Work(chosen, columns, place, sums)
        _stream(reading, work, writer, progress)
    dropped = tuple(name for name in run.unused if name not in run.own_schema.names)
    return _result(reading, work, str(Path(out)), level, dropped)


def _open(run: Run, specs: Sequence[TargetSpec]) -> Reading:
    """The prepared pass; SchemaError names the first target whose columns are not there."""
    needs: dict[str, str] = {}
    for spec in specs:
        wanted = ["values"] if spec.name != "mc" else []
        if spec.reads_weights:
            wanted = ["mu_logprobs", "pi_logprobs", *wanted]
        needs |= {column: spec.label for column in wanted if column not in needs}
    missing = [column for column in needs if column not in run.columns]
    question = f"the target {needs[missing[0]]}" if missing else "the targets"
    return Reading.open(run, question, tuple(needs), ("values",))


def _range(reading: Reading) -> tuple[float, float]:
    return returns_range(reading.index.total_reward)


def _stream(
    reading: Reading, work: _Work, writer: CanonicalWriter, progress: Progress | None
) -> None:
    """Compute chunk by chunk; a second thread encodes and writes the one before."""
    tokens = max(1, CHUNK_TOKENS // (1 + len(work.specs) // 4))
    waiting: Future[None] | None = None
    with (
        ThreadPoolExecutor(1, thread_name_prefix="brace-diag-write") as pool,
        closing(reading.chunks(progress, chunk_tokens=tokens)) as chunks,
    ):
        for chunk, info in chunks:
            table = work.extended(chunk, info.counted)
            if waiting is not None:
                waiting.result()
            waiting = pool.submit(writer.write, table)
        if waiting is not None:
            waiting.result()


@dataclass(slots=True)
class _Work:
    """What one pass computes and counts.

    Attributes:
        specs, columns: the targets and the names of their columns by kind.
        device: where they are computed; sums: for their comparison.
        nulls: by target and reason; gamma: discount of the return that targets are compared with.
    """

    specs: tuple[TargetSpec, ...]
    columns: list[dict[str, str]]
    device: Device
    sums: TargetSums
    nulls: list[dict[str, int]] = field(init=False)
    recursions: list[Recursion] = field(init=False)

    def __post_init__(self) -> None:
        self.nulls = [dict.fromkeys(("off_mask", *REASONS), 0) for _ in self.specs]
        self.recursions = [recursion(spec.name, **spec.parameters) for spec in self.specs]

    @property
    def gamma(self) -> float:
        """The targets' discount where they have one in common, else 1."""
        gammas = {spec.gamma for spec in self.specs}
        return gammas.pop() if len(gammas) == 1 else 1.0

    def extended(self, chunk: Chunk, counted: npt.NDArray[np.bool_]) -> Any:
        """The chunk's table with the columns of every target."""
        rollouts, lists, table = chunk.rollouts, AlignedLists(chunk), chunk.table
        batch, n = self.device.load(rollouts), rollouts.n_tokens
        dtype = token_type(rollouts)
        compared = np.empty((len(self.specs) + 1, n), dtype)
        batch.targets(recursion("mc", gamma=self.gamma), compared[-1])
        for i, rec in enumerate(self.recursions):
            target, names = compared[i], self.columns[i]
            batch.targets(rec, target)
            missing = _missing(target)
            self.nulls[i]["off_mask"] += lists.n_entries - n
            if missing is not None:
                for reason, count in null_reasons(rec, rollouts, missing, self.device).items():
                    self.nulls[i][reason] += count
            table = table.append_column(names["target"], lists.lists(target, missing))
            advantage = np.empty(n, dtype)
            batch.advantages(target, rec.gamma, advantage)
            column = lists.lists(advantage, _missing(advantage))
            table = table.append_column(names["advantage"], column)
            kappa = np.empty(n, dtype)
            batch.log10_kappa(rec, kappa)
            bad = np.isnan(kappa)  # -inf is no gap: no reward reaches that target
            column = lists.lists(kappa, bad if bad.any() else None)
            table = table.append_column(names["log10_kappa"], column)
        self.sums.update(rollouts, compared, counted)
        return table


def _missing(numbers: Floats) -> npt.NDArray[np.bool_] | None:
    """Where no finite number stands, or None where one stands everywhere."""
    return ~np.isfinite(numbers) if count_nonfinite(numbers) else None


def _result(
    reading: Reading, work: _Work, path: str, level: float, dropped: tuple[str, ...]
) -> TargetsWritten:
    compared = compare(work.sums, level)
    n = len(work.specs)
    extra = ("return", "values") if work.sums.has_values else ("return",)
    correlation = correlations_of([*(s.label for s in work.specs), *extra], compared)
    figures = tuple(
        TargetFigures(
            spec=spec,
            columns=work.columns[i],
            mean=compared.mean[i],
            variance=compared.variance[i],
            minus_return=compared.minus_return[i],
            distance=None if compared.distance is None else compared.distance[i],
            outside=None if compared.outside is None else compared.outside[i],
            correlation=correlation[spec.label],
            null_share=sum(work.nulls[i][r] for r in REASONS) / reading.quality.n_tokens,
            nulls=work.nulls[i],
        )
        for i, spec in enumerate(work.specs)
    )
    critic = compared.mean[n + 1 :], compared.variance[n + 1 :]
    return TargetsWritten(
        source=reading.run.source,
        path=path,
        device=work.device.name,
        quality=reading.quality,
        targets=figures,
        return_mean=compared.mean[n],
        return_variance=compared.variance[n],
        values_mean=critic[0][0] if critic[0] else None,
        values_variance=critic[1][0] if critic[1] else None,
        return_range=_range(reading) if np.isfinite(reading.index.total_reward).any() else None,
        gamma=work.gamma,
        n_rows=reading.quality.n_rows,
        n_compared=compared.n_tokens,
        level=level,
        notes=target_notes(reading, figures, compared, work.gamma, dropped),
    )
