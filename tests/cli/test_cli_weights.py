"""`weights` from a file on disk to a table, a document and three figures."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from brace_diag import importance_products, open_run
from brace_diag.schemas import load_schema

Cli = Callable[..., Any]
LogOf = Callable[..., Path]

NAMED = (
    "m", "sigma", "sigma_hac", "tau_prompt", "usable_horizon", "mean_weight", "u_control",
    "ess_token", "ess_rollout", "log_products", "clip_share", "kl_k1", "kl_k3",
)  # fmt: skip


def parsed(outcome: Any) -> dict[str, Any]:
    """The document of a run that must have gone well, checked against its schema."""
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""

    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is not JSON")

    document: dict[str, Any] = json.loads(outcome.out, parse_constant=refuse)
    Draft202012Validator(load_schema("weights")).validate(document)
    return document


def test_schema_is_valid_and_shares_its_definitions() -> None:
    schema, bias = load_schema("weights"), load_schema("bias")
    Draft202012Validator.check_schema(schema)
    for name in ("estimate", "source", "quality"):
        assert schema["$defs"][name] == bias["$defs"][name]
    for part in json.dumps(schema).split('"$ref": "')[1:]:
        assert part.split('"')[0].removeprefix("#/$defs/") in schema["$defs"]


def test_document_holds_what_the_library_computes(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    words = ("--c-bar", "1", "--rho-bar", "2", "--gamma", "0.99", "--lam", "0.9", "--level", "0.9")
    document = parsed(cli("weights", path, "--json", *words))
    found = importance_products(
        open_run(str(path)), c_bar=1.0, rho_bar=2.0, gamma=0.99, lam=0.9, level=0.9
    )
    assert document["settings"] == found.settings.to_dict()
    assert document["quality"] == found.quality.to_dict()
    results = document["results"]
    assert set(NAMED) <= set(results)
    # Ten significant digits are printed: half a unit of the tenth is 5e-10 at most.
    assert results["m"]["value"] == pytest.approx(found.figures.m.value, rel=5e-10)
    assert results["m"]["level"] == 0.9
    assert results["clip_share"]["rho_bar"]["value"] == pytest.approx(
        found.figures.clip_rho_bar.value, rel=5e-10
    )
    cells = results["log_products"]["cells"]
    assert [cell["low"] for cell in cells] == [1, 2, 4, 8, 16]
    assert {"forecast_mean", "spread_naive", "spread_hac", "spread_prompt"} <= set(cells[0])
    assert "by" not in results


def test_table_says_what_the_document_holds(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    found = importance_products(open_run(str(path)))
    outcome = cli("weights", path)
    assert (outcome.code, outcome.err) == (0, "")
    m = found.figures.m
    assert m.value is not None
    assert outcome.out.startswith("At c_bar = 1.1 a token adds m = ")
    assert f"m = {m.value:.4f}" in outcome.out
    for words in (
        "sqrt(n) sigma (naive)",
        "with tau",
        "Is w = pi/mu an importance ratio? yes",
        "noise floor",
        "clipped by rho_bar",
        "0 tokens with |log w| > 5",
        f"{found.quality.n_tokens:,} policy tokens",
    ):
        assert words in outcome.out, words
    for note in found.notes:
        assert note in outcome.out


def test_keys(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    by = parsed(cli("weights", path, "--json", "--by", "step"))["results"]["by"]
    assert [entry["key"] for entry in by["entries"]] == [0, 10]
    by = parsed(cli("weights", path, "--json", "--by", "staleness"))["results"]["by"]
    assert [entry["key"] for entry in by["entries"]] == [0, 4]
    assert "By staleness\n  staleness" in cli("weights", path, "--by", "staleness").out


def test_no_cap_is_null_in_strict_json(cli: Cli, log_of: LogOf) -> None:
    document = parsed(cli("weights", log_of(), "--json", "--c-bar", "inf"))
    assert document["settings"]["c_bar"] is None
    results = document["results"]
    assert results["m"]["value"] == results["m_uncapped"]["value"]
    assert results["clip_share"]["c_bar"]["value"] == 0.0


def test_the_cut_into_files_and_threads_change_nothing(
    cli: Cli, log_of: LogOf, tmp_path: Path
) -> None:
    table = pq.read_table(log_of())
    folder = tmp_path / "run"
    texts = []
    for n_files, threads in ((1, "1"), (3, "2"), (50, "1")):
        folder.mkdir()
        edges = np.linspace(0, table.num_rows, n_files + 1).astype(int)
        for i, (low, high) in enumerate(pairwise(edges)):
            pq.write_table(table.slice(low, high - low), folder / f"part-{i:03d}.parquet")
        outcome = cli("weights", folder, "--json", "--by", "step", "--threads", threads)
        parsed(outcome)
        texts.append(outcome.out)
        for part in folder.iterdir():
            part.unlink()
        folder.rmdir()
    assert texts[0] == texts[1] == texts[2]


@pytest.mark.parametrize("figure", [None, "products", "tails", "positions"])
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_figures_are_written(
    cli: Cli, log_of: LogOf, tmp_path: Path, figure: str | None, ending: str
) -> None:
    path = tmp_path / f"w.{ending}"
    chosen = () if figure is None else ("--figure", figure)
    outcome = cli("weights", log_of(), "--plot", path, *chosen)
    assert (outcome.code, outcome.err) == (0, f"wrote {path}\n")
    assert path.read_bytes()[:5] in (b"\x89PNG\r", b"<?xml")
    if ending == "svg":
        named = {"tails": "noise floor", "positions": "counted from either end"}
        assert named.get(figure or "", "window length n") in path.read_text(encoding="utf-8")


def test_wrong_use_is_told_in_a_line(cli: Cli, log_of: LogOf) -> None:
    path = log_of()
    for words, told in (
        (("--c-bar", "0"), "c_bar is 0.0; it must be above 0, or inf"),
        (("--figure", "tails"), "add --plot FILE"),
        (("--staleness", "last"), "--by staleness"),
        (("--gamma", "2"), "gamma is 2.0"),
    ):
        outcome = cli("weights", path, *words)
        assert outcome.code == 2
        assert told in outcome.err
        assert outcome.out == ""
    lacking = log_of("without.parquet", pi_logprobs=None)
    outcome = cli("weights", lacking)
    assert outcome.code == 2
    assert "pi_logprobs" in outcome.err


def test_an_engine_mismatch_withholds_the_verdict(cli: Cli, log_of: LogOf) -> None:
    rows = pq.read_table(log_of())["mu_logprobs"].to_pylist()
    path = log_of(pi_logprobs=[[x - 0.1 for x in row] for row in rows])
    outcome = cli("weights", path)
    assert outcome.out.startswith("This log cannot tell how the weights behave:")
    assert "no: engine mismatch" in outcome.out
    assert "likely cause: w < 1 on 100 % of the tokens" in outcome.out
    document = parsed(cli("weights", path, "--json"))
    assert document["results"]["ratio"]["verdict"] == "engine_mismatch"
    assert document["results"]["m"]["reliable"] is False


def test_a_miscalibrated_log_says_so_at_once(cli: Cli, log_of: LogOf) -> None:
    rows = pq.read_table(log_of())["mu_logprobs"].to_pylist()
    path = log_of(pi_logprobs=[[x + 0.008 for x in row] for row in rows])
    outcome = cli("weights", path)
    assert "none of this is to be believed" in outcome.out.splitlines()[0]
    assert "not quite: miscalibrated" in outcome.out


def test_a_forced_token_is_named(cli: Cli, log_of: LogOf) -> None:
    table = pq.read_table(log_of())
    mu, pi = table["mu_logprobs"].to_pylist(), table["pi_logprobs"].to_pylist()
    forced = [[*row[:-1], m[-1] - 15.0] for row, m in zip(pi, mu, strict=True)]
    ids = [[*range(100, 99 + len(row)), 2] for row in mu]
    path = log_of(pi_logprobs=forced, token_ids=ids)
    text = cli("weights", path).out
    assert "  - 100 % of |log w| > 5 on one id (2): likely a mask bug, not drift" in text
    assert "192 tokens with |log w| > 5" in text
    carriers = parsed(cli("weights", path, "--json"))["results"]["tails"]["carriers"]
    assert {"kind": "token_id", "low": 2, "high": 2, "count": 192, "share": 1.0} in carriers


def test_nothing_to_weigh_still_answers(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    rows = pq.read_table(log_of())["mu_logprobs"].to_pylist()
    same = log_of("same.parquet", pi_logprobs=rows)
    missing = log_of("nan.parquet", pi_logprobs=[[float("nan")] * len(row) for row in rows])
    # Half of the rollouts are four versions old: equality is a copy, not freshness.
    assert "pi copied" in cli("weights", same).out
    fresh = log_of("fresh.parquet", pi_logprobs=rows, behavior_version=[9] * len(rows))
    assert "no staleness logged" in cli("weights", fresh).out
    assert cli("weights", missing).out.startswith("No mean log-weight: ")
    for path in (same, fresh, missing):
        parsed(cli("weights", path, "--json"))
        for figure in ("products", "tails", "positions"):
            outcome = cli("weights", path, "-q", "--plot", tmp_path / "w.png", "--figure", figure)
            assert (outcome.code, outcome.err) == (0, "")


def test_one_prompt_has_no_interval(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    n = len(pq.read_table(log_of())["mu_logprobs"])
    path = log_of("one.parquet", prompt_id=["p"] * n)
    document = parsed(cli("weights", path, "--json"))
    m = document["results"]["m"]
    assert m["value"] is not None and m["ci_low"] is None and m["reason"]
    for figure in ("products", "tails", "positions"):
        outcome = cli("weights", path, "-q", "--plot", tmp_path / "w.png", "--figure", figure)
        assert (outcome.code, outcome.err) == (0, "")
