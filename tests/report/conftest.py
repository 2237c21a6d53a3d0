"""Findings of a real log, gathered once, and pages made of them."""

from pathlib import Path

import pytest

from brace_diag import Findings, gather_findings, open_run, render_report

LOG = Path(__file__).parents[1] / "data" / "async_run.parquet"


@pytest.fixture(scope="session")
def findings() -> Findings:
    """Of a log with three steps, a critic and both policies."""
    return gather_findings(open_run(LOG))


@pytest.fixture(scope="session")
def page(findings: Findings) -> str:
    """The report of it."""
    return render_report(findings)
