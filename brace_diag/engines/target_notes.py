"""What the reader of a log with targets must be told: a sentence for each trap."""

from __future__ import annotations

from collections.abc import Sequence

from brace_diag.engines.reading import Reading
from brace_diag.estimators.target_summary import Comparison
from brace_diag.results_targets import TargetFigures

_CAUSES = {
    "log_prob": "a missing log-prob",
    "value": "a missing critic value",
    "reward": "a missing reward",
    "overflow": "ratios beyond the range of the numbers (give the target caps)",
}


def target_notes(
    reading: Reading,
    targets: Sequence[TargetFigures],
    compared: Comparison,
    gamma: float,
    dropped: Sequence[str],
) -> tuple[str, ...]:
    """Sentences in order of weight; `dropped`: columns of the log that were not copied."""
    return (
        *_log(reading, targets),
        *_nulls(targets),
        *_dropped(dropped),
        *_comparison(reading, targets, compared, gamma),
    )


def _log(reading: Reading, targets: Sequence[TargetFigures]) -> list[str]:
    notes, probe = [], reading.signs.probe
    weighted = any(figures.spec.reads_weights for figures in targets)
    lag = probe.best_lag()
    if weighted and lag is not None:
        notes.append(
            f"MISALIGNED lag={lag:+d}: pi fits mu shifted by {lag:+d} token far better than "
            "unshifted; the targets rest on ratios of different tokens, do not train on them"
        )
    if weighted and probe.copied():
        stale = reading.signs.n_stale
        why = f" while {stale} rollouts are stale: copied, not recomputed" if stale else ""
        notes.append(
            "pi is bit-identical to mu on more than 99 % of the tokens"
            f"{why}; the targets correct nothing"
        )
    if not reading.has_values:
        notes.append("the log has no values: the advantages are null")
    elif reading.signs.values.broken:
        notes.append(reading.signs.values.words())
    cut = reading.quality.truncated_without_bootstrap
    if cut:
        notes.append(
            f"{cut} truncated rollouts have no bootstrap_value; their targets take 0 for what "
            "comes after"
        )
    return notes


def _nulls(targets: Sequence[TargetFigures]) -> list[str]:
    return [
        f"{figures.columns['target']}: {figures.nulls[reason]:,} tokens are null because of {cause}"
        for figures in targets
        for reason, cause in _CAUSES.items()
        if figures.nulls[reason]
    ]


def _dropped(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [f"not copied: {', '.join(names)}; of JSON lines only canonical columns are"]


def _comparison(
    reading: Reading, targets: Sequence[TargetFigures], compared: Comparison, gamma: float
) -> list[str]:
    notes = []
    left_out = reading.quality.n_tokens - compared.n_tokens
    if left_out:
        notes.append(
            f"targets are compared over {compared.n_tokens:,} tokens; {left_out:,} are left out, "
            "where one of them, the return or the critic is not known, or a row repeats another"
        )
    if len({figures.spec.gamma for figures in targets}) > 1:
        notes.append("the targets differ in gamma; they are compared with the undiscounted return")
    if compared.outside is None:
        notes.append("all returns are one number, so no target can be said to lie outside of them")
    elif gamma < 1.0 or "rewards" in reading.run.columns:
        notes.append(
            "outside: beyond the range of total rewards; with discounts or rewards per token a "
            "return to go may lie there too"
        )
    return notes
