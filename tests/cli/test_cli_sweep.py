"""`sweep` from a file on disk to tables, a document and a figure."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from jsonschema import Draft202012Validator

from brace_diag import open_run, sweep
from brace_diag.schemas import load_schema
from brace_diag.tabular import LatentFamily, sample_log

Cli = Callable[..., Any]
LogOf = Callable[..., Path]


@pytest.fixture(scope="module")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """512 responses of 128 tokens whose gap is plain."""
    rng = np.random.default_rng(17)
    mdp = LatentFamily(n_prompts=64, horizon=128, drift=0.04, alignment=0.8).build(rng)
    path = tmp_path_factory.mktemp("logs") / "stale.parquet"
    pq.write_table(sample_log(mdp, 64, 8, rng, pool=True).to_table(), path)
    return path


def test_the_answer_comes_first_and_holds_what_the_library_computes(cli: Cli, stale: Path) -> None:
    found = sweep(open_run(str(stale)))
    outcome = cli("sweep", stale)
    assert (outcome.code, outcome.err) == (0, "")
    assert found.recommendation is not None
    lines = outcome.out.splitlines()
    assert lines[0] == f"Train the critic on {found.recommendation.label}"
    reason = found.recommendation.reason
    assert lines[1].strip() == f"{reason[0].upper()}{reason[1:]}."
    head = next(i for i, line in enumerate(lines) if line.startswith("Share of the gap"))
    # No response is longer than 128 tokens: k = 256 and k = inf are one column.
    assert lines[head + 1].split() == ["rho_bar", "c_bar", "k=16", "k=64", "k=100", "k=all"]
    row = next(line for line in lines[head + 2 :] if line.split()[:2] == ["1.2", "1.1"])
    own = found.at(100, 1.2, 1.1).share
    assert f"{100 * (own.value or 0):.0f} ±{100 * (own.se or 0):.0f}%" in row


def test_the_document_fits_its_schema_and_is_the_result(cli: Cli, stale: Path) -> None:
    outcome = cli("sweep", stale, "--json", "--k", "8", "--k", "inf", "--rho-bar", "1.5")
    document = json.loads(outcome.out)
    Draft202012Validator(load_schema("sweep")).validate(document)
    found = sweep(open_run(str(stale)), k=(8, float("inf")), rho_bar=(1.5,))
    assert document["settings"]["k"] == [8, None]
    assert document["settings"]["rho_bar"] == [1.5]
    points = document["results"]["points"]
    assert [p["target"] for p in points] == [p.label for p in found.points]
    assert points[0]["share"]["value"] == pytest.approx(found.points[0].share.value, rel=1e-9)
    assert document["results"]["recommendation"]["target"] in {p["target"] for p in points}
    assert document["results"]["no_recommendation"] is None


def test_the_schema_refuses_what_is_wrong(cli: Cli, stale: Path) -> None:
    good = json.loads(cli("sweep", stale, "--json").out)
    validator = Draft202012Validator(load_schema("sweep"))
    for name in good["results"]:
        rest = {key: value for key, value in good["results"].items() if key != name}
        assert list(validator.iter_errors(good | {"results": rest})), name
    good["results"]["points"][0]["k"] = 0
    assert list(validator.iter_errors(good))


def test_no_recommendation_is_said_with_its_reason(cli: Cli, log_of: LogOf) -> None:
    outcome = cli("sweep", log_of())
    assert outcome.code == 0
    assert outcome.out.startswith("No settings to recommend\n")
    assert "not told apart from 0" in outcome.out
    assert "not to be relied on: the gap is not told apart from 0" in outcome.out


def test_the_recommended_target_can_be_computed(cli: Cli, stale: Path, tmp_path: Path) -> None:
    found = sweep(open_run(str(stale)))
    assert found.recommendation is not None
    out = tmp_path / "out.parquet"
    outcome = cli("targets", stale, "-o", out, "--target", found.recommendation.label, "-q")
    assert outcome.code == 0, outcome.err
    assert any(name.startswith("target_brace") for name in pq.read_schema(out).names)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--k", "0"), "error: k is 0; a sweep takes whole numbers from 1, and inf\n"),
        (("--rho-bar", "0"), "error: rho_bar is 0; in a sweep it must be above 0 and finite\n"),
        (("--plot", "x.gif"), "error: --plot x.gif: the ending .gif is not one of "),
    ],
)
def test_wrong_usage_is_told_in_a_line(
    cli: Cli, stale: Path, words: tuple[str, ...], message: str
) -> None:
    outcome = cli("sweep", stale, *words)
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith(message)


def test_the_figure_is_written(cli: Cli, stale: Path, tmp_path: Path) -> None:
    for ending in ("png", "svg", "pdf"):
        path = tmp_path / f"sweep.{ending}"
        outcome = cli("sweep", stale, "--plot", path)
        assert outcome.code == 0
        assert outcome.err == f"wrote {path}\n"
        assert path.stat().st_size > 5_000
