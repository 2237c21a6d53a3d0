"""`audit`: what it prints, in four forms, and how it leaves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from brace_diag import audit, open_run
from brace_diag.schemas import load_schema
from brace_diag.tabular import LatentFamily, sample_log

Cli = Callable[..., Any]
LogOf = Callable[..., Path]
DEMO = Path(__file__).parents[2] / "brace_diag" / "data" / "demo.parquet"


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A log for each of four verdicts."""
    folder = tmp_path_factory.mktemp("logs")
    made = {}
    for name, drift, alignment, prompts in (
        ("needs_correction", 0.04, 0.8, 64),
        ("negligible", 0.004, 0.2, 128),
        ("needs_probe", 0.2, 0.3, 64),
        ("no_staleness", 0.0, 0.0, 64),
    ):
        rng = np.random.default_rng(17)
        mdp = LatentFamily(n_prompts=128, horizon=128, drift=drift, alignment=alignment).build(rng)
        made[name] = folder / f"{name}.parquet"
        pq.write_table(sample_log(mdp, prompts, 8, rng, pool=True).to_table(), made[name])
    made["invalid"] = folder / "invalid.parquet"
    table = pq.read_table(made["needs_correction"]).drop_columns(["pi_logprobs"])
    pq.write_table(table, made["invalid"])
    return made


@pytest.mark.parametrize(
    ("verdict", "sentence"),
    [
        ("needs_correction", "The critic needs correction"),
        ("negligible", "The critic needs no correction"),
        ("needs_probe", "This log cannot tell; fresh rollouts from pi can"),
        ("no_staleness", "Nothing was tested"),
        ("invalid", "This log cannot be judged as it is"),
    ],
)
def test_the_verdict_is_the_first_line(
    cli: Cli, logs: dict[str, Path], verdict: str, sentence: str
) -> None:
    found = cli("audit", logs[verdict])
    assert found.code == 0
    assert found.err == ""
    assert found.out.splitlines()[0] == f"{verdict}: {sentence}"
    assert "Checks" in found.out
    assert "\x1b" not in found.out


@pytest.mark.parametrize(
    ("verdict", "on_correction", "on_any"),
    [
        ("needs_correction", 1, 1),
        ("negligible", 0, 0),
        ("needs_probe", 0, 3),
        ("no_staleness", 0, 3),
        ("invalid", 0, 3),
    ],
)
def test_the_exit_code_says_what_was_asked(
    cli: Cli, logs: dict[str, Path], verdict: str, on_correction: int, on_any: int
) -> None:
    assert cli("audit", logs[verdict], "--fail-on", "correction").code == on_correction
    assert cli("audit", logs[verdict], "--fail-on", "any").code == on_any


@pytest.mark.parametrize("verdict", ["needs_correction", "negligible", "no_staleness", "invalid"])
@pytest.mark.parametrize("by", [(), ("--by", "step")])
def test_the_document_fits_its_schema_and_is_the_result(
    cli: Cli, logs: dict[str, Path], verdict: str, by: tuple[str, ...]
) -> None:
    outcome = cli("audit", logs[verdict], "--json", *by)
    document = json.loads(outcome.out)
    Draft202012Validator(load_schema("audit")).validate(document)
    found = audit(open_run(logs[verdict]), by=by[1] if by else None)
    results = document["results"]
    assert results["verdict"] == found.verdict == verdict
    assert [check["id"] for check in results["checks"]] == [check.id for check in found.checks]
    assert ("by" in results) is bool(by)
    assert cli("audit", logs[verdict], "--output-format", "json", *by).out == outcome.out


def test_the_schema_refuses_what_is_wrong(cli: Cli, logs: dict[str, Path]) -> None:
    good = json.loads(cli("audit", logs["needs_correction"], "--json").out)
    validator = Draft202012Validator(load_schema("audit"))
    for name in good["results"]:
        rest = {key: value for key, value in good["results"].items() if key != name}
        assert list(validator.iter_errors(good | {"results": rest})), name
    assert list(validator.iter_errors(good | {"results": good["results"] | {"verdict": "fine"}}))
    good["results"]["checks"][0]["status"] = "perhaps"
    assert list(validator.iter_errors(good))


def test_annotations_are_one_line_each_and_escaped(cli: Cli, logs: dict[str, Path]) -> None:
    lines = cli("audit", logs["needs_correction"], "--output-format", "github").out.splitlines()
    assert lines[0].startswith(
        "::error title=brace-diag%3A needs_correction%3A The critic needs correction::pi earns"
    )
    assert "95 %25 confidence" in lines[0]
    for line in lines:
        assert line.startswith(("::error title=", "::warning title=", "::notice title="))
    quiet = cli("audit", logs["negligible"], "--output-format", "github").out
    assert quiet.startswith("::notice title=")
    assert "::error" not in quiet


def test_the_comment_is_a_table_that_a_name_cannot_break(
    cli: Cli, logs: dict[str, Path], tmp_path: Path
) -> None:
    odd = tmp_path / "a|<b>&.parquet"
    odd.write_bytes(logs["needs_correction"].read_bytes())
    text = cli("audit", odd, "--output-format", "markdown", "--by", "step").out
    assert text.startswith("### brace-diag: needs_correction: The critic needs correction\n")
    assert "a\\|&lt;b&gt;&amp;.parquet" in text
    assert "<b>" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ") and "`" in line]
    assert len(rows) == len(audit(open_run(odd)).checks)
    assert {row.replace("\\|", "").count("|") for row in rows} == {5}
    assert "| step | verdict | b | margin |" in text


def test_steps_are_judged_one_by_one(cli: Cli, log_of: LogOf) -> None:
    text = cli("audit", log_of(), "--by", "step").out
    at = text.index("By step")
    assert [line.split()[0] for line in text[at:].splitlines()[2:4]] == ["0", "10"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--margin", "0"), "margin"),
        (("--margin", "-1"), "margin"),
        (("--fail-on", "everything"), "--fail-on"),
        (("--output-format", "yaml"), "--output-format"),
        (("--format", "github"), "--format"),
        (("--by", "staleness"), "--by"),
    ],
)
def test_wrong_use_is_told_in_a_line_or_two(
    cli: Cli, logs: dict[str, Path], words: tuple[str, str], told: str
) -> None:
    outcome = cli("audit", logs["negligible"], *words)
    assert outcome.code == 2
    assert told in outcome.err
    assert "Traceback" not in outcome.err
    assert outcome.out == ""


def test_a_log_without_a_step_has_none_to_judge(cli: Cli, log_of: LogOf) -> None:
    outcome = cli("audit", log_of(step=None), "--by", "step")
    assert outcome.code == 2
    assert "step" in outcome.err


def test_the_margin_is_the_one_asked_for(cli: Cli, logs: dict[str, Path]) -> None:
    wide = json.loads(cli("audit", logs["needs_correction"], "--json", "--margin", "1").out)
    assert wide["results"]["verdict"] == "negligible"
    assert wide["settings"]["margin"] == 1.0
    tight = json.loads(cli("audit", logs["needs_correction"], "--json").out)
    assert wide["results"]["margin"] == pytest.approx(10.0 * tight["results"]["margin"])


def test_the_demo_log_is_judged(cli: Cli) -> None:
    assert cli("audit", DEMO).out.startswith("needs_probe: ")


def test_an_empty_log_is_no_traceback(cli: Cli, tmp_path: Path) -> None:
    lists = pa.array([], pa.list_(pa.float32()))
    columns = {"mu_logprobs": lists, "pi_logprobs": lists, "reward": pa.array([], pa.float64())}
    pq.write_table(pa.table(columns), tmp_path / "empty.parquet")
    outcome = cli("audit", tmp_path / "empty.parquet", "--fail-on", "any")
    assert outcome.code in (2, 3)
    assert "Traceback" not in outcome.err


def test_fresh_rollouts_stand_beside_the_weights(
    cli: Cli, logs: dict[str, Path], tmp_path: Path
) -> None:
    table = pq.read_table(logs["needs_probe"])
    fresh = tmp_path / "fresh.parquet"
    pq.write_table(table.drop_columns(["pi_logprobs", "values"]), fresh)
    document = json.loads(cli("audit", logs["needs_probe"], "--fresh", fresh, "--json").out)
    Draft202012Validator(load_schema("audit")).validate(document)
    (direct,) = document["results"]["direct"]
    # The same rollouts again: their returns cannot differ.
    assert (direct["kind"], direct["b"]["value"], direct["n_prompts"]) == ("fresh", 0, 64)
    text = cli("audit", logs["needs_probe"], "--fresh", fresh).out
    assert "fresh_rollouts: 512 rollouts of pi on 64 prompts give b = +0" in text
    text = cli("bias", logs["negligible"], "--fresh", fresh).out
    assert "from returns alone" in text and "fresh rollouts from pi" in text
    document = json.loads(cli("bias", logs["negligible"], "--fresh", fresh, "--json").out)
    Draft202012Validator(load_schema("bias")).validate(document)
    outcome = cli("audit", logs["negligible"], "--fresh", tmp_path / "none.parquet")
    assert outcome.code == 2 and "none.parquet" in outcome.err
