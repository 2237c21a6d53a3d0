"""How two runs differ: a pass over each, then differences that know which prompts they share."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from brace_diag.engines.figures import (
    WANTS,
    WEIGHTS,
    SetFigures,
    SetState,
    believed,
    close,
    info_of,
    maker,
    ratio_of,
)
from brace_diag.engines.reading import Reading
from brace_diag.engines.runs import Progress, RunLike
from brace_diag.estimators import gap_estimates as ge
from brace_diag.estimators import importance_estimates as ie
from brace_diag.estimators.comparison import difference, with_holm
from brace_diag.estimators.critic_fit import whole_figures
from brace_diag.estimators.gap_notes import gap_notes, invalidating, no_staleness
from brace_diag.estimators.intervals import IntervalMaker, unit
from brace_diag.results import Cell, Estimate
from brace_diag.results_compare import Comparison, Difference, Side
from brace_diag.results_trend import SERIES, FigureSettings
from brace_diag.rollouts import Rollouts
from brace_diag.sums import Jackknife


@dataclass(frozen=True, slots=True)
class _Measured:
    """One run, its figures, and a one-output jackknife of each."""

    reading: Reading
    own: SetFigures
    side: Side
    jacks: dict[str, Jackknife]
    cells: dict[int, tuple[Cell, Jackknife]]


def compare(
    a: RunLike | Iterable[Rollouts],
    b: RunLike | Iterable[Rollouts],
    settings: FigureSettings | None = None,
    *,
    threads: int | None = None,
    progress: Progress | None = None,
    **changes: Any,
) -> Comparison:
    """Differences b - a of gap, critic and weights between two runs, and of the gap by position.

    Where the runs share prompts, their standard errors are those of paired differences: groups of
    prompts are left out of both at once. p-values are adjusted after Holm, over the figures and
    over the positions apart.

    Args:
        a, b: opened runs, or `Rollouts` (a list is read twice, so not a generator).
        settings: gamma, level, baseline and caps; `changes` override single fields.
        threads: threads of the sums; all cores by default. The result does not depend on it.
        progress: called with rows done and rows in all, of one run after the other.

    Raises:
        SchemaError: a run has no return, or no policy token.
        InputError: a setting out of its range.
    """
    chosen = replace(settings or FigureSettings(), **changes)
    n_threads = threads or os.cpu_count() or 1
    one = _measure(a, chosen, n_threads, progress)
    two = _measure(b, chosen, n_threads, progress)
    shared = np.intersect1d(one.reading.index.prompt, two.reading.index.prompt)
    known = not (one.side.quality.prompts_missing or two.side.quality.prompts_missing)
    paired = known and len(shared) > 0
    return Comparison(
        settings=chosen,
        a=one.side,
        b=two.side,
        n_shared_prompts=len(shared) if known else 0,
        paired=paired,
        figures=with_holm(_figures(one, two, paired)),
        cells=with_holm(_cells(one, two, paired)),
        notes=_notes(one, two, known, len(shared)),
    )


def _measure(
    run: RunLike | Iterable[Rollouts],
    settings: FigureSettings,
    threads: int,
    progress: Progress | None,
) -> _Measured:
    reading = Reading.open(run, "a comparison", (), WANTS)
    state = maker(reading, settings, positions=True)()
    for batch, info in reading.batches(progress):
        state.update(batch, info_of(reading, batch, info), threads=threads)
    own = close(state, reading, settings)
    grave = invalidating(own.gap, reading.signs) if reading.has_w else []
    why = grave[0].split(":")[0] if grave else None
    notes = gap_notes(settings.gap(), reading.quality, own.gap, reading.signs)
    own = believed(own, reading, why, ratio_of(state.weights, reading, settings))
    side = Side(
        source=reading.run.source,
        quality=reading.quality,
        n_prompts=len(np.unique(reading.index.prompt)),
        invalid=next(iter([*grave, *no_staleness(own.gap)]), None),
        notes=notes,
    )
    jacks, cells = _jackknifes(state, reading, settings, own)
    return _Measured(reading, own, side, jacks, cells)


def _jackknifes(
    state: SetState, reading: Reading, settings: FigureSettings, own: SetFigures
) -> tuple[dict[str, Jackknife], dict[int, tuple[Cell, Jackknife]]]:
    """Of every figure and of the gap at every start, by its first position."""
    shift = settings.gap().group_shift if own.gap.baseline == "group" else 0.0
    starts = ge.gap_jackknife(state.gap, shift)
    means = ge.means_jackknife(state.gap)
    found: dict[str, Jackknife] = {}
    cells: dict[int, tuple[Cell, Jackknife]] = {}
    for i, cell in enumerate(own.gap.gap.cells[: len(starts.starts)]):
        at = starts.column(i, "wdr", own.gap.baseline)
        cells[int(cell.low)] = (cell, starts.jack.contrast(unit(len(starts.jack.value), at)))
    at_mean = {name: unit(len(means.value), j) for j, name in enumerate(ge.MEANS)}
    reward, critic = at_mean["reward_mu"], at_mean["critic_mean"]
    found["reward_mu"], found["critic_mean"] = means.contrast(reward), means.contrast(critic)
    found["g_mu"] = means.contrast(critic - reward)
    if cells:
        gap = cells[min(cells)][1]
        joint = ge.stack([gap, means])

        def with_gap(weight: float, rest: Any) -> Jackknife:
            return joint.contrast(np.concatenate([[weight], rest]))

        found["b_hat"] = gap
        found["reward_pi"] = with_gap(1.0, reward)
        found["g_pi"] = with_gap(-1.0, critic - reward)
    if state.critic is not None:
        fit = whole_figures(IntervalMaker(settings.level), state.critic).jack
        found["explained_variance"] = fit.contrast(unit(len(fit.value), 0))
    if state.weights is not None:
        weights = ie.figures(state.weights, 0.0).jack
        for name, theirs in WEIGHTS.items():
            sign = -1.0 if name.startswith("kept_") else 1.0
            vector = sign * unit(len(weights.value), ie.NAMES.index(theirs))
            found[name] = weights.contrast(vector)
    return found, cells


def _figures(one: _Measured, two: _Measured, paired: bool) -> list[Difference]:
    return [
        _difference(
            name,
            None,
            one.own.figures[name],
            two.own.figures[name],
            one.jacks.get(name),
            two.jacks.get(name),
            paired,
        )
        for name in SERIES
    ]


def _cells(one: _Measured, two: _Measured, paired: bool) -> list[Difference]:
    """Cells that both runs have; the last of one may be cut at its longest response."""
    found = []
    for low in sorted(one.cells.keys() & two.cells.keys()):
        (cell_a, jack_a), (cell_b, jack_b) = one.cells[low], two.cells[low]
        high = int(max(cell_a.high, cell_b.high))
        found.append(
            _difference(
                "gap", (low, high), cell_a.estimate, cell_b.estimate, jack_a, jack_b, paired
            )
        )
    return found


def _difference(
    name: str,
    span: tuple[int, int] | None,
    a: Estimate,
    b: Estimate,
    jack_a: Jackknife | None,
    jack_b: Jackknife | None,
    paired: bool,
) -> Difference:
    nothing = Jackknife(np.zeros(1), np.zeros((0, 1)), np.zeros(1, np.int64), np.zeros(0, np.int64))
    made, p = difference(a, b, jack_a or nothing, jack_b or nothing, paired=paired)
    low, high = span or (None, None)
    return Difference(name, low, high, a, b, made, p, None)


def _notes(one: _Measured, two: _Measured, known: bool, n_shared: int) -> tuple[str, ...]:
    """What each run's reader must see, and what the comparison rests on."""
    own = []
    if not known:
        own.append(
            "a run has rollouts without a prompt id: the runs are compared as independent, which "
            "is too wide if they share prompts"
        )
    elif n_shared == 0:
        own.append(
            "the runs share no prompt: they are compared as independent, and a difference may be "
            "one of the prompts"
        )
    elif n_shared < max(one.side.n_prompts, two.side.n_prompts):
        own.append(
            f"{n_shared:,} prompts are in both runs ({one.side.n_prompts:,} in a, "
            f"{two.side.n_prompts:,} in b): a difference may partly be one of the prompts"
        )
    return (
        *own,
        *(f"a: {note}" for note in one.side.notes),
        *(f"b: {note}" for note in two.side.notes),
    )
