"""Staleness as the key of an estimate: of the first token, or of the last."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brace_diag.engines.local import value_gap
from brace_diag.errors import InputError, SchemaError
from brace_diag.estimators.staleness import last_staleness
from brace_diag.readers import open_run
from brace_diag.rollouts import Rollouts


@pytest.fixture
def in_flight(columns: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    """A log whose first tokens are 1 or 3 versions behind, and last tokens 0 or 1."""
    made = columns()
    n = len(made["reward"])
    odd = np.arange(n) % 2
    half = [np.repeat([6 - 2 * o, 7 - o], 12) for o in odd]
    return made | {"trainer_version": [7] * n, "versions": half}


def test_the_key_can_be_that_of_the_first_or_the_last_token(in_flight: dict[str, Any]) -> None:
    batches = [Rollouts.from_lists(**{k: v[a:b] for k, v in in_flight.items()})
               for a, b in ((0, 40), (40, 96))]  # fmt: skip
    first = value_gap(batches, by="staleness")
    last = value_gap(batches, by="staleness", staleness="last")
    assert [entry.key for entry in first.by] == [1, 3]
    assert [entry.key for entry in last.by] == [0, 1]
    # The same halves of the log under other names.
    for a, b in zip(first.by, last.by, strict=True):
        assert a.batch == b.batch
    assert last.notes[-1] == "staleness is that of each rollout's last policy token"
    assert first.notes[-1].startswith("staleness is that of each rollout's first policy token")
    np.testing.assert_array_equal(last_staleness(batches), np.arange(96) % 2)


def test_last_without_versions_per_token_is_refused(rollouts: Callable[..., Rollouts]) -> None:
    batch = rollouts(trainer_version=[7] * 96, behavior_version=[5] * 96)
    with pytest.raises(SchemaError, match="needs trainer_version and per-token versions"):
        value_gap(batch, by="staleness", staleness="last")
    with pytest.raises(InputError, match="allowed: first, last"):
        value_gap(batch, by="staleness", staleness="middle")


def test_a_file_tells_the_same_as_memory(in_flight: dict[str, Any], tmp_path: Path) -> None:
    lists = {"mu_logprobs", "pi_logprobs", "values", "versions"}
    table = pa.table({k: pa.array(list(v)) if k in lists else v for k, v in in_flight.items()})
    pq.write_table(table, tmp_path / "log.parquet", row_group_size=30)
    run = open_run(tmp_path / "log.parquet")
    memory = value_gap(Rollouts.from_lists(**in_flight), by="staleness", staleness="last")
    assert value_gap(run, by="staleness", staleness="last").by == memory.by
