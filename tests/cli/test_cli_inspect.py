"""`inspect`: what was taken for what, what is odd, and which questions the log can answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from brace_diag.schemas import load_schema
from brace_diag_cli.answers import answers

Cli = Callable[..., Any]
LogOf = Callable[..., Path]
ALL = {
    "mu_logprobs", "pi_logprobs", "values", "reward", "prompt_id", "step", "trainer_version",
    "behavior_version",
}  # fmt: skip


def parsed(outcome: Any) -> dict[str, Any]:
    assert outcome.code == 0, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    Draft202012Validator(load_schema("inspect")).validate(document)
    return document


def test_everything_is_stated(cli: Cli, log_of: LogOf) -> None:
    outcome = cli("inspect", log_of())
    assert (outcome.code, outcome.err) == (0, "")
    text = outcome.out
    for column in ALL:
        assert f"\n  {column} " in text
    for heading in ("Summary", "Checks", "What this log can answer", "Data"):
        assert f"\n{heading}\n" in text
    assert "192 rows, 192 rollouts" in text
    assert "trainer steps             0 to 10" in text
    assert "staleness in versions     0 to 4" in text
    assert "\n  no " not in text


def test_document_says_the_same(cli: Cli, log_of: LogOf) -> None:
    document = parsed(cli("inspect", log_of(), "--json"))
    assert document["results"]["summary"]["n_prompts"] == 24
    assert document["results"]["summary"]["staleness_max"] == 4
    assert all(question["possible"] for question in document["results"]["questions"])
    assert document["quality"]["n_rows"] == 192


def test_steps_and_maps_are_honoured(cli: Cli, log_of: LogOf) -> None:
    table = pq.read_table(log_of()).rename_columns({"values": "vf"})
    path = log_of("renamed.parquet")
    pq.write_table(table, path)
    text = cli("inspect", path).out
    assert "not used: vf (give one a meaning with --map CANONICAL=NAME)" in text
    mapped = parsed(cli("inspect", path, "--json", "--map", "values=vf", "--steps", "0:1"))
    assert mapped["source"]["columns"]["values"] == "vf"
    assert mapped["source"]["unused"] == []
    assert mapped["quality"]["n_rows"] == 96


@pytest.mark.parametrize(
    ("column", "command", "words"),
    [
        ("pi_logprobs", "bias", "the log has no pi_logprobs"),
        ("step", "bias --by step", "the log has no step"),
        ("trainer_version", "bias --by staleness", "the log has no trainer_version"),
        ("behavior_version", "bias --by staleness", "the log has no behavior_version or versions"),
    ],
)
def test_what_is_refused_is_refused_by_name(
    cli: Cli, log_of: LogOf, column: str, command: str, words: str
) -> None:
    path = log_of(**{column: None})
    questions = parsed(cli("inspect", path, "--json"))["results"]["questions"]
    refused = [q for q in questions if not q["possible"]]
    assert refused
    assert all(words in q["reason"] for q in refused)
    assert command in {q["command"] for q in refused}
    outcome = cli(*command.split(), path)
    assert outcome.code == 2, "what inspect refuses, the command refuses too"
    assert column.split("_")[0] in outcome.err


def test_what_is_possible_does_work(
    cli: Cli, log_of: LogOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = log_of()
    monkeypatch.chdir(tmp_path)  # where `targets` writes
    for question in parsed(cli("inspect", path, "--json"))["results"]["questions"]:
        assert cli(*question["command"].split(), path).code == 0


def test_limits_of_an_answer_are_said() -> None:
    def reasons(columns: set[str]) -> dict[str, str | None]:
        return {answer.question: answer.reason for answer in answers(columns)}

    gap = "value gap V^pi - V^mu by position"
    assert reasons(ALL)[gap] is None
    assert "no prompt_id" in (reasons(ALL - {"prompt_id"})[gap] or "")
    assert "no values" in (reasons(ALL - {"values"})[gap] or "")
    assert reasons(ALL - {"values"})["critic bias V - V^pi by position"] == "the log has no values"
    assert reasons(ALL - {"reward"} | {"rewards"})[gap] is None
    assert reasons(ALL - {"reward"})[gap] == "the log has no reward or rewards"


def test_a_broken_log_is_told_first_and_exits_0(cli: Cli, log_of: LogOf) -> None:
    rows = pq.read_table(log_of())["mu_logprobs"].to_pylist()
    path = log_of(pi_logprobs=[row[1:] + row[:1] for row in rows])
    outcome = cli("inspect", path)
    assert outcome.code == 0
    assert "not fit to be judged as it is (alignment" in outcome.out.splitlines()[0]
    assert "\n        -> " in outcome.out
    document = parsed(cli("inspect", path, "--json"))
    assert any("MISALIGNED" in note for note in document["notes"])


def test_warnings_are_counted(cli: Cli, log_of: LogOf) -> None:
    outcome = cli("inspect", log_of(prompt_id=None))
    assert "can be read, with 1 warning" in outcome.out.splitlines()[0]
    assert "warn  clusters: 192 rollouts have no prompt_id" in outcome.out


def test_staleness_is_said_as_far_as_the_log_tells_it(cli: Cli, log_of: LogOf) -> None:
    lengths = [len(row) for row in pq.read_table(log_of())["mu_logprobs"].to_pylist()]
    versions = [[4 + i % 2, *[5] * (n - 1)] for i, n in enumerate(lengths)]
    path = log_of(versions=versions, behavior_version=None)
    text = cli("inspect", path).out
    assert "staleness in versions      4 to 5, median 4.50\n" in text
    assert "weights changed in flight  50% of the rollouts, up to 1 version\n" in text
    unknown = [5 if i % 4 else -1 for i in range(192)]
    text = cli("inspect", log_of(behavior_version=unknown)).out
    assert "4 to 4, median 4; unknown for 25% of the rollouts\n" in text
    assert "in flight" not in text
    nothing = cli("inspect", log_of(behavior_version=None)).out
    assert "staleness in versions     not told by the log\n" in nothing
