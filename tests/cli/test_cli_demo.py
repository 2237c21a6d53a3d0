"""`demo`: the shipped log, measured and held against its truth."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from brace_diag import ValueGap, audit, open_run, value_gap
from brace_diag.results import KeyedGap
from brace_diag.schemas import load_schema
from brace_diag_cli.demo import Probe, compare, probes_of, rms_z

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of one run of the command."""
    import contextlib
    import io

    from brace_diag_cli.main import main

    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main(["demo", "--json"]) == 0
    parsed: dict[str, Any] = json.loads(out.getvalue())
    return parsed


def test_document_fits_its_schema(document: dict[str, Any]) -> None:
    Draft202012Validator(load_schema("demo")).validate(document)
    assert document["source"]["paths"] == ["demo.parquet"]


def test_estimates_and_truth_agree(document: dict[str, Any]) -> None:
    z = [p["z"] for p in document["results"]["truth"]["probes"] if p["position"] == 0]
    known = [x for x in z if x is not None]
    assert known
    # The sum of n squared standard normal errors is beyond 4 n once in 10^3 times or less
    # (chi-square, n >= 2); the shipped log is always the same.
    assert sum(x * x for x in known) < 4.0 * max(len(known), 2)


def test_text_has_truth_and_next_steps(cli: Cli, tmp_path: Path) -> None:
    log, figure = tmp_path / "log.parquet", tmp_path / "gap.png"
    outcome = cli("demo", "--save-log", log, "--plot", figure)
    assert outcome.code == 0
    assert outcome.err == f"wrote {log}\nwrote {figure}\n"
    assert outcome.out.startswith("The shipped log: ")
    assert "By step, at the first token" in outcome.out
    assert "Against the truth" in outcome.out
    commands = [line for line in outcome.out.splitlines() if line.startswith("  brace-diag ")]
    assert len(commands) == 4
    assert all(str(log) in line for line in commands[:3])
    assert value_gap(open_run(str(log))).batch.b_hat.n_rollouts > 0
    assert figure.read_bytes()[:4] == b"\x89PNG"


def test_the_verdict_and_the_report_are_those_of_an_audit(
    cli: Cli, document: dict[str, Any], tmp_path: Path
) -> None:
    page, log = tmp_path / "demo.html", tmp_path / "log.parquet"
    outcome = cli("demo", "--report", page, "--save-log", log)
    found = audit(open_run(str(log)))
    assert document["results"]["audit"]["verdict"] == found.verdict
    assert outcome.out.split("\n\n")[1].startswith(f"{found.verdict}: {found.sentence}")
    assert f"wrote {page}: {found.verdict}\n" in outcome.err
    assert "the shipped log" in page.read_text(encoding="utf-8")
    assert cli("demo", "--report", tmp_path / "demo.pdf").code == 2


def test_without_a_copy_the_first_step_is_to_make_one(cli: Cli) -> None:
    lines = cli("demo").out.splitlines()
    assert lines[lines.index("Next") + 1].startswith("  brace-diag demo --save-log ")


def test_a_copy_replaces_nothing_unasked(cli: Cli, tmp_path: Path) -> None:
    log = tmp_path / "log.parquet"
    log.write_text("mine")
    outcome = cli("demo", "--save-log", log)
    assert outcome.code == 2
    assert "exists; choose another name, or replace it with --force" in outcome.err
    assert log.read_text() == "mine"
    assert cli("demo", "--save-log", log, "--force").code == 0
    assert log.read_bytes()[:4] == b"PAR1"


def test_probes_meet_the_estimate_of_their_step_and_position(
    gap_of: Callable[..., ValueGap],
) -> None:
    gap = gap_of()
    gap = gap_of(by=(KeyedGap(40, gap.batch, gap.gap, "good", 0.4),))
    probes = probes_of(
        {
            "probes": [
                {"step": 60, "position": 0, "b": 0.0, "b_se": 0.01},
                {"step": 40, "position": 512, "b": 0.0103, "b_se": 0.01},
                {"step": 40, "position": 0, "b": 0.0, "b_se": 0.01},
            ]
        }
    )
    assert probes[0] == Probe(40, 0, 0.0, 0.01)
    compared = compare(gap, probes)
    assert [(c.step, c.position) for c in compared] == [(40, 0), (40, 512)]
    # By hand: 0.0313 / sqrt(0.0123^2 + 0.01^2), and (-0.002 - 0.0103) / the same.
    assert compared[0].z == pytest.approx(1.974498, rel=1e-5)
    assert compared[1].z == pytest.approx(-0.775921, rel=1e-5)
    assert rms_z(compared) == pytest.approx(1.974498, rel=1e-5)


def test_no_truth_no_claim(gap_of: Callable[..., ValueGap]) -> None:
    assert rms_z([]) is None
    assert compare(gap_of(), [Probe(1, 0, 0.0, 0.1)]) == []
