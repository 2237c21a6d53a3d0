"""Staleness by token and by rollout: unknown is never 0, and counts add up over shards."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from brace_diag.estimators.staleness import (
    StalenessSums,
    rollout_staleness,
    spread,
    token_staleness,
    version_span,
)
from brace_diag.rollouts import UNKNOWN, Rollouts

NONE = UNKNOWN


def log(**changes: Any) -> Rollouts:
    """In flight, one version, prompt versions around it, wholly unknown, empty, no trainer's."""
    lengths = (4, 3, 5, 2, 0, 2)
    columns: dict[str, Any] = {
        "mu_logprobs": [[-0.5] * n for n in lengths],
        "reward": [1.0] * 6,
        "prompt_id": list(range(6)),
        "trainer_version": [9, 9, 8, 9, 9, None],
        "versions": [[5, 5, 7, 8], [9, 9, 9], [-1, 4, 6, 6, -1], [-1, -1], [], [3, 3]],
    }
    return Rollouts.from_lists(**{k: v for k, v in (columns | changes).items() if v is not None})


def test_every_token_has_its_own() -> None:
    wanted = [4, 4, 2, 1, 0, 0, 0, NONE, 4, 2, 2, NONE, NONE, NONE, NONE, NONE]
    found = token_staleness(log())
    assert found is not None and found.tolist() == wanted


def test_first_last_and_span_pass_over_what_no_policy_sampled() -> None:
    batch = log()
    first, last, span = (
        rollout_staleness(batch, "first"),
        rollout_staleness(batch, "last"),
        version_span(batch),
    )
    assert first is not None and last is not None and span is not None
    assert first.tolist() == [4, 0, 4, NONE, NONE, NONE]
    assert last.tolist() == [1, 0, 2, NONE, NONE, NONE]
    # The span needs no trainer version.
    assert span.tolist() == [3, 0, 2, NONE, NONE, 0]


def test_without_versions_per_token_nobody_knows_the_last_or_the_span() -> None:
    batch = log(versions=None, behavior_version=[5, 9, 4, -1, 3, 3])
    assert rollout_staleness(batch, "last") is None
    assert version_span(batch) is None
    first = rollout_staleness(batch, "first")
    assert first is not None and first.tolist() == [4, 0, 4, NONE, 6, NONE]
    tokens = token_staleness(batch)
    assert tokens is not None
    assert tokens.tolist() == [4] * 4 + [0] * 3 + [4] * 5 + [NONE] * 2 + [NONE] * 2
    sums = StalenessSums()
    sums.update(batch, np.ones(6, np.bool_))
    assert spread(sums.span).unknown == 1.0
    assert spread(sums.span).positive is None
    assert spread(sums.last).low is None


def test_a_log_without_any_version_is_wholly_unknown() -> None:
    sums = StalenessSums()
    sums.update(log(versions=None, trainer_version=None), np.ones(6, np.bool_))
    told = spread(sums.first)
    assert (told.low, told.median, told.high, told.mean, told.unknown) == (
        None, None, None, None, 1.0,
    )  # fmt: skip


def test_versions_above_the_trainers_or_decreasing_are_counted_as_odd() -> None:
    assert log().quality.versions_odd == 0
    above = log(versions=[[5, 5, 7, 10], [9, 9, 9], [4] * 5, [-1, -1], [], [3, 3]])
    falling = log(versions=[[5, 5, 7, 8], [9, 8, 9], [4] * 5, [-1, -1], [], [3, 3]])
    assert above.quality.versions_odd == falling.quality.versions_odd == 1


def test_spread_is_that_of_the_sorted_list() -> None:
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 50):
        values = rng.integers(-1, 6, n)
        told = spread(Counter(values.tolist()) + Counter({UNKNOWN: 3}))
        assert told.median == np.median(values)
        assert (told.low, told.high) == (values.min(), values.max())
        assert told.mean == pytest.approx(values.mean(), rel=1e-12)
        assert told.positive == pytest.approx((values > 0).mean(), rel=1e-12)
        assert told.unknown == pytest.approx(3 / (n + 3), rel=1e-12)


def test_shards_add_up_to_the_whole() -> None:
    """Exact counts: the same whatever the split, and an empty shard changes nothing."""
    columns = {
        "mu_logprobs": [[-0.5] * 3] * 12,
        "reward": [1.0] * 12,
        "trainer_version": [5] * 12,
        "versions": [[i % 4, i % 4 + i % 2, 4] for i in range(12)],
    }
    whole = StalenessSums()
    whole.update(Rollouts.from_lists(**columns), np.ones(12, np.bool_))
    for cut in (1, 5, 11):
        total = StalenessSums()
        for part in (slice(cut, 12), slice(0, cut)):
            shard = StalenessSums()
            batch = Rollouts.from_lists(**{k: v[part] for k, v in columns.items()})
            shard.update(batch, np.ones(batch.n_rollouts, np.bool_))
            total.merge(shard)
        total.merge(StalenessSums())
        assert total == whole


def test_copies_are_not_counted() -> None:
    sums = StalenessSums()
    sums.update(log(), np.array([False, True, True, True, True, True]))
    assert sums.first == Counter({0: 1, 4: 1, UNKNOWN: 2})
    assert sums.tokens.total() == 12
