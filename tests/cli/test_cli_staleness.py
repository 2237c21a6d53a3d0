"""`--by staleness --staleness first|last`: which version is the key, and that it is said."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

Cli = Callable[..., Any]
LogOf = Callable[..., Path]


@pytest.fixture
def in_flight(log_of: LogOf) -> Path:
    """First tokens 4 or 3 versions behind, last ones 1."""
    lengths = [len(row) for row in pq.read_table(log_of())["mu_logprobs"].to_pylist()]
    versions = [[5 + i % 2, *[8] * (n - 1)] for i, n in enumerate(lengths)]
    return log_of("in_flight.parquet", versions=versions, behavior_version=None)


@pytest.mark.parametrize("command", ["bias", "critic"])
def test_the_key_is_that_of_the_token_asked_for(cli: Cli, in_flight: Path, command: str) -> None:
    for kind, keys in (("first", [3, 4]), ("last", [1])):
        words = ("--by", "staleness", "--staleness", kind)
        outcome = cli(command, in_flight, *words, "--json")
        assert outcome.code == 0, outcome.err
        document = json.loads(outcome.out)
        assert document["settings"]["staleness"] == kind
        assert [entry["key"] for entry in document["results"]["by"]["entries"]] == keys
        assert document["notes"][-1].startswith(
            f"staleness is that of each rollout's {kind} policy token"
        )
        assert document["notes"][-1] in cli(command, in_flight, *words).out


@pytest.mark.parametrize("command", ["bias", "critic"])
def test_the_last_token_needs_versions_per_token(cli: Cli, log_of: LogOf, command: str) -> None:
    outcome = cli(command, log_of(), "--by", "staleness", "--staleness", "last")
    assert outcome.code == 2
    assert outcome.out == ""
    assert "needs trainer_version and per-token versions" in outcome.err
    outcome = cli(command, log_of(), "--staleness", "last")
    assert outcome.code == 2
    assert "--staleness last belongs to --by staleness; add it" in outcome.err
