"""`inspect` on versions: what is known, what is not, and what contradicts itself."""

from collections.abc import Callable
from typing import Any

import numpy as np

from brace_diag.engines.inspect import inspect_run
from brace_diag.results import Check, Inspection
from brace_diag.rollouts import Rollouts

Columns = Callable[..., dict[str, Any]]


def look(columns: Columns, **changes: Any) -> Inspection:
    return inspect_run(Rollouts.from_lists(**(columns() | changes)))


def versions_check(found: Inspection) -> Check | None:
    return {check.id: check for check in found.checks}.get("versions")


def in_flight(n: int = 96) -> list[list[int]]:
    """24 tokens each; every fourth rollout sees the weights change twice."""
    return [[5] * 8 + [6] * 8 + [7] * 8 if i % 4 == 0 else [7] * 24 for i in range(n)]


def test_versions_per_token_tell_first_last_and_span(columns: Columns) -> None:
    found = look(columns, trainer_version=[8] * 96, versions=in_flight())
    told = found.summary
    assert (told["staleness_min"], told["staleness_median"], told["staleness_max"]) == (1, 1.0, 3)
    assert told["staleness_last_median"] == 1.0
    assert told["staleness_token_mean"] == 0.75 * 1 + 0.25 * 2
    assert told["in_flight_share"] == 0.25
    assert told["in_flight_span_max"] == 2
    assert told["staleness_unknown_share"] == 0.0
    check = versions_check(found)
    assert check is not None and check.status == "ok"


def test_one_version_a_rollout_tells_no_span(columns: Columns) -> None:
    found = look(columns, trainer_version=[8] * 96, behavior_version=[8] * 48 + [5] * 48)
    assert found.summary["staleness_median"] == 1.5
    assert found.summary["staleness_token_mean"] == 1.5
    for name in ("in_flight_share", "in_flight_span_max", "staleness_last_median"):
        assert found.summary[name] is None, "unknown, not 0"


def test_no_version_is_unknown_and_no_zero(columns: Columns) -> None:
    found = look(columns)
    assert found.summary["staleness_unknown_share"] == 1.0
    for name in ("staleness_min", "staleness_median", "staleness_max", "staleness_token_mean"):
        assert found.summary[name] is None
    assert versions_check(found) is None


def test_some_unknown_is_noted_with_its_share(columns: Columns) -> None:
    versions = np.where(np.arange(96) < 24, -1, 7).tolist()
    found = look(columns, trainer_version=[8] * 96, behavior_version=versions)
    assert found.summary["staleness_unknown_share"] == 0.25
    assert found.summary["staleness_max"] == 1
    check = versions_check(found)
    assert check is not None and check.status == "note"
    assert "staleness of 24 rollouts is unknown" in check.message


def test_versions_above_the_trainers_or_decreasing_are_warned(columns: Columns) -> None:
    odd = in_flight()
    odd[0] = odd[0][::-1]
    odd[1] = [9] * 24
    found = look(columns, trainer_version=[8] * 96, versions=odd)
    check = versions_check(found)
    assert check is not None and check.status == "warn"
    assert check.message.startswith("2 of 96 rollouts have a version above the trainer's")
    assert found.summary["staleness_min"] == -1


def test_copies_and_empty_rows_are_left_out(columns: Columns) -> None:
    made = columns() | {"trainer_version": [8] * 96, "behavior_version": [7] * 96}
    copies = {name: [*column, *column[:8]] for name, column in made.items()}
    copies["behavior_version"][96:] = [0] * 8
    found = inspect_run(Rollouts.from_lists(**copies))
    assert found.summary["staleness_max"] == 1
