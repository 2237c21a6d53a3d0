"""`report` from a log on disk to a page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from brace_diag import gather_findings, open_run, render_report

Cli = Callable[..., Any]
LogOf = Callable[..., Path]


def test_the_page_is_that_of_the_library(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    path, out = log_of(), tmp_path / "out.html"
    outcome = cli("report", path, "-o", out)
    found = gather_findings(open_run(str(path)))
    assert (outcome.code, outcome.out) == (0, "")
    assert outcome.err == f"wrote {out}: {found.audit.verdict}\n"
    assert out.read_text(encoding="utf-8") == render_report(found)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_page_that_exists_is_kept_unless_forced(cli: Cli, log_of: LogOf, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    out.write_text("mine")
    outcome = cli("report", log_of(), "-o", out)
    assert (outcome.code, out.read_text()) == (2, "mine")
    assert outcome.err == (
        f"error: {out} exists; choose another name, or replace it with --force\n"
    )
    assert cli("report", log_of(), "-o", out, "--force", "--by", "step", "-q").err == ""
    assert "<h3>By step</h3>" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.pdf", "a report is a page; let the name end in .html"),
        ("nowhere/out.html", "there is no folder"),
    ],
)
def test_a_name_that_cannot_be_is_refused_before_reading(
    cli: Cli, tmp_path: Path, name: str, message: str
) -> None:
    outcome = cli("report", "no-such-log.parquet", "-o", tmp_path / name)
    assert outcome.code == 2
    assert message in outcome.err
