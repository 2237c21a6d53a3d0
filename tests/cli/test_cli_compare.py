"""`compare` from two files on disk to tables, a document and a figure."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from brace_diag import compare, open_run
from brace_diag.schemas import load_schema

Cli = Callable[..., Any]


@pytest.fixture
def runs(log_of: Callable[..., Path]) -> tuple[Path, Path]:
    rng = np.random.default_rng(8)
    other = rng.integers(0, 2, 192).astype(float)
    return log_of("a.parquet"), log_of("b.parquet", reward=other)


def test_tables_show_what_the_library_computes(cli: Cli, runs: tuple[Path, Path]) -> None:
    found = compare(*(open_run(str(path)) for path in runs))
    outcome = cli("compare", *runs)
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0].startswith("The gaps are not told apart: b less a is ")
    assert "differences are paired by prompt: 24 prompts are in both" in outcome.out
    own = found.figure("reward_mu")
    row = next(line for line in lines if line.split()[:1] == ["E_mu[R]"]).split()
    assert float(row[1]) == pytest.approx(own.a.value, abs=6e-4)
    assert float(row[3]) == pytest.approx(own.difference.value, abs=6e-4)
    head = lines.index("Gap by token position")
    assert lines[head + 2].split()[0] == "0"
    assert sum(line == "Data" for line in lines) == 2


def test_the_document_fits_its_schema_and_is_the_result(cli: Cli, runs: tuple[Path, Path]) -> None:
    validator = Draft202012Validator(load_schema("compare"))
    document = json.loads(cli("compare", *runs, "--json").out)
    validator.validate(document)
    assert document["source"]["a"]["paths"] == [str(runs[0])]
    found = compare(*(open_run(str(path)) for path in runs))
    figures = {one["name"]: one for one in document["results"]["figures"]}
    assert figures["b_hat"]["p_holm"] == pytest.approx(found.figure("b_hat").p_holm)
    for name in document["results"]:
        rest = {key: value for key, value in document["results"].items() if key != name}
        assert list(validator.iter_errors(document | {"results": rest})), name


def test_a_run_that_is_not_there_is_named(cli: Cli, runs: tuple[Path, Path]) -> None:
    outcome = cli("compare", runs[0], "nowhere.parquet")
    assert outcome.code == 2
    assert outcome.err.startswith("error: nowhere.parquet")
    assert cli("compare", runs[0]).code == 2


def test_the_figure_is_written(cli: Cli, runs: tuple[Path, Path], tmp_path: Path) -> None:
    for ending in ("png", "svg", "pdf"):
        path = tmp_path / f"compare.{ending}"
        outcome = cli("compare", *runs, "--plot", path)
        assert (outcome.code, outcome.err) == (0, f"wrote {path}\n")
        assert path.stat().st_size > 5_000
